"""A step method whose chains are kept on disk while they are sampled."""

from __future__ import annotations

import logging
import time

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pymc.initial_point import PointType
from pymc.model import Model, modelcontext
from pymc.stats.convergence import SamplerWarning, WarningType
from pymc.step_methods.arraystep import PopulationArrayStepShared
from pymc.step_methods.compound import BlockedStep, CompoundStep, flatten_steps
from pymc.util import (
    RandomGenerator,
    RandomGeneratorState,
    get_state_from_generator,
    random_generator_from_state,
)

from pymc_sgmcmc._version import __version__
from pymc_sgmcmc.step.step import SGMCMCStep
from pymc_sgmcmc.store.chain_store import Begin, ChainStore
from pymc_sgmcmc.store.fingerprint import differences, fingerprint, model_arrays

__all__ = ["Checkpoint", "checkpoint"]

_log = logging.getLogger("pymc.sgmcmc")

# A seed of at least so much was drawn by NumPy, which takes 128 bits where none is given
_DRAWN = 2**64

# Names of the numbers in a record
_VALUE = "value "


def checkpoint(
    step: BlockedStep | CompoundStep | Sequence[BlockedStep | CompoundStep],
    path: str | Path,
    *,
    every: float = 10.0,
    model: Model | None = None,
) -> Checkpoint:
    """Keep the chains of a step method on disk, so that a killed run goes on.

    Draws, statistics and all that a chain is are written to a folder while ``pm.sample`` runs.
    The same line, run again, returns what is there and goes on from it: the result has the bits
    of the run that was not broken, and a chain that is complete is not sampled again. With more
    ``draws=`` the chains go on for longer; ``chains=`` and ``cores=`` may be others, too.

    Parameters
    ----------
    step : step method, or list of them
        For all variables of the model. A list, such as
        ``[sg.CoRVSGLD([beta]), pm.BinaryMetropolis([z])]``, is sampled in turn, as PyMC does.
    path : str or Path
        The folder of the run. Each chain has a folder in it.
    every : float, default 10
        Seconds between two states on disk, and so what is lost at most, beside the draw that is
        being made: the tuning of a chain is its first draw. 0 for a state after each draw.
    model : pymc.Model, optional
        That of the context by default.

    Returns
    -------
    step method
        For ``pm.sample(step=...)``.

    Raises
    ------
    ValueError
        If the store is of another model, of other data, options or versions; if a variable is
        left to other step methods.
    pymc.exceptions.SamplingError
        While sampling: if the disk is full, if a file is damaged, or if another process samples
        the same chain. What was written is kept.

    Notes
    -----
    A store is kept by ``random_seed``: with another one it is refused. Without one the chains go
    on with the seeds that they began with. Kill a run at any time, also inside a write: each file
    is whole or not there, and carries a checksum. No file is unpickled.

    A chain takes the room of its draws and of two states, each some copies of a position and what
    tuning keeps: a matrix of d x d numbers for d to 512, at most 8 MB of gradients at an anchor.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_sgmcmc as sg
    >>> def run(draws):
    ...     with pm.Model():
    ...         x = pm.Normal("x")
    ...         step = sg.checkpoint(sg.MSGNHT(), path)
    ...         return pm.sample(draws, step=step, random_seed=1, cores=1, progressbar=False)
    >>> import tempfile
    >>> path = tempfile.mkdtemp()
    >>> first = run(200)
    >>> longer = run(300)  # 100 more
    >>> longer.posterior.sel(draw=slice(0, 199)).equals(first.posterior)
    True
    """
    return Checkpoint(step, path, every=every, model=model)


class Checkpoint(CompoundStep):
    """What :func:`checkpoint` returns: step methods whose draws are kept, or read where they are.

    Parameters
    ----------
    step, path, every, model
        As of :func:`checkpoint`.
    """

    def __init__(
        self,
        step: BlockedStep | CompoundStep | Sequence[BlockedStep | CompoundStep],
        path: str | Path,
        *,
        every: float = 10.0,
        model: Model | None = None,
    ) -> None:
        if isinstance(step, Sequence):
            step = step[0] if len(step) == 1 else CompoundStep(list(step))
        if isinstance(step, Checkpoint):
            raise ValueError("step is a checkpoint already. Pass the step methods themselves.")
        self._inner = step
        super().__init__(step.methods if isinstance(step, CompoundStep) else [step])
        self.model: Model = modelcontext(model or getattr(flatten_steps(step)[0], "model", None))
        self.path = Path(path).absolute()
        if isinstance(every, bool) or not isinstance(every, int | float) or not every >= 0:
            raise ValueError(f"every must be a number of seconds, such as 10, got {every!r}.")
        self.every = float(every)
        self._require_all_variables()
        self._forget_data()
        self._begin_chain(None)
        for folder in sorted(self.path.glob("chain-*")):
            begun = ChainStore(folder).begun
            if begun is not None:
                self._require_same(begun)

    def _require_all_variables(self) -> None:
        sampled = {value for method in flatten_steps(self._inner) for value in method.vars}
        left = [v for v in self.model.value_vars if v not in sampled]
        if left:
            names = ", ".join(f"'{self.model.values_to_rvs[value].name}'" for value in left)
            raise ValueError(
                f"{names}: sampled by none of the step methods of the checkpoint, which must keep "
                "the whole chain. Pass all of them in a list: sg.checkpoint([sg.CoRVSGLD([x]), "
                "pm.Metropolis([y])], path)."
            )
        if any(isinstance(m, PopulationArrayStepShared) for m in flatten_steps(self._inner)):
            raise NotImplementedError("Step methods of a population of chains cannot be kept.")

    # ------------------------------------------------------------------ what the store is of

    def _forget_data(self) -> None:
        self._lines: dict[str, str] = {}
        self._arrays: list[np.ndarray] = []

    def _fingerprint(self) -> dict[str, str]:
        """Return what the run is of; data are read again only where they were set anew."""
        arrays = model_arrays(self.model)
        same = len(arrays) == len(self._arrays) and all(
            a is b for a, b in zip(arrays, self._arrays, strict=True)
        )
        if not (same and self._lines):
            self._lines = fingerprint(self.model, flatten_steps(self._inner))
            self._arrays = arrays
        return self._lines

    def _require_same(self, begun: Begin) -> None:
        differ = differences(begun.fingerprint, self._fingerprint())
        if differ:
            raise ValueError(
                f"The store '{self.path}' is of another run: {'; '.join(differ)}. Pass another "
                "path, or what the store was begun with."
            )

    def _require_seed(self, stored: RandomGeneratorState) -> None:
        was, now = (_words(rng.seed_seq_state["entropy"]) for rng in (stored, self._rng))
        if was == now:
            return
        if len(now) == 1 and now[0] >= _DRAWN:
            _log.info("Chain %s goes on with the seed that it began with.", self._number)
            return
        given = "was begun without random_seed"
        if len(was) > 1 or was[0] < _DRAWN:
            given = f"was begun with random_seed={was if len(was) > 1 else was[0]}"
        raise ValueError(
            f"The store '{self.path}' {given}. Pass none to go on with its own, or another path."
        )

    # ------------------------------------------------------------------ PyMC's hooks

    def setup_chain(self, rng: RandomGenerator, tune: int, draws: int) -> None:
        """Find what is stored of this chain."""
        self._rng = get_state_from_generator(rng)
        # Of all generators that are spawned from one seed each has a key of its own
        self._number = "-".join(map(str, self._rng.seed_seq_state["spawn_key"])) or "0"
        store = ChainStore(self.path / f"chain-{self._number}")
        if store.saved.draws < tune + draws:
            store.open()
        self._begin_chain(store)
        self._last, self._tune = tune + draws, tune
        if store.begun is not None:
            self._require_same(store.begun)
            if store.begun.tune != tune:
                raise ValueError(
                    f"The store '{self.path}' was begun with tune={store.begun.tune}, not {tune}. "
                    f"Pass tune={store.begun.tune}, or another path."
                )
            self._require_seed(store.begun.rng)
            rng = random_generator_from_state(store.begun.rng)
        if store.saved.draws:
            _log.info(
                "Chain %s: %d of its %d draws are in the store.",
                self._number,
                min(store.saved.draws, self._last),
                self._last,
            )
            self._stored = self._read(store)
        if store.saved.draws < self._last:
            self._inner.setup_chain(rng, tune, draws)

    def step(self, point: PointType) -> tuple[PointType, list[dict[str, Any]]]:
        """Return the next draw that is stored, or make one and store it."""
        if self._stored is not None:
            found = next(self._stored, None)
            if found is not None:
                values, stats = found
                return {name: values[name] for name in point}, stats
            self._stored = None
        store = self._store
        assert store is not None
        if store.begun is None:
            store.begin(self._beginning(point), __version__)
        if not self._made:
            # A chain that was killed before its first state begins where it did then
            assert store.begun is not None
            point = {name: store.begun.start[name] for name in point}
        point, stats = self._inner.step(point)
        self._made += 1
        store.add(self._recorded(store, point, stats))
        if self._made == self._last or time.monotonic() >= self._due:
            store.save(self._made, self._warnings, self.sampling_state)
            self._due = time.monotonic() + self.every
        if self._made == self._last:
            store.close()
        return point, stats

    def __getstate__(self) -> dict[str, Any]:
        unsent = {"_store": None, "_stored": None, "_lines": {}, "_arrays": []}
        return {**self.__dict__, **unsent}

    # ------------------------------------------------------------------ records of draws

    def _begin_chain(self, store: ChainStore | None) -> None:
        self._store = store
        self._stored: Iterator[tuple[dict[str, np.ndarray], list[dict[str, Any]]]] | None = None
        self._made = 0
        self._warnings: list[Any] = [] if store is None else list(store.saved.warnings)
        self._due = time.monotonic() + self.every

    def _beginning(self, point: PointType) -> Begin:
        start = {name: np.array(value) for name, value in point.items()}
        layout = [[_VALUE + name, x.dtype.str, list(x.shape)] for name, x in start.items()]
        for k, method in enumerate(flatten_steps(self._inner)):
            for name, (kind, shape) in method.stats_dtypes_shapes.items():
                if np.dtype(kind) == object:
                    continue
                if shape is None or None in shape:
                    raise NotImplementedError(
                        f"{type(method).__name__} has a statistic, '{name}', whose shape is not "
                        "known beforehand: it cannot be kept."
                    )
                layout.append([_statistic(k, name), np.dtype(kind).str, list(shape)])
        return Begin(self._fingerprint(), self._rng, self._tune, start, layout)

    def _recorded(
        self, store: ChainStore, point: PointType, stats: Sequence[dict[str, Any]]
    ) -> bytes:
        """Return the record of a draw, and note its warnings."""
        assert store.begun is not None
        record = np.zeros((), dtype=store.begun.record())
        for name in store.begun.start:
            record[_VALUE + name] = point[name]
        for k, of_method in enumerate(stats):
            for name, value in of_method.items():
                if isinstance(value, SamplerWarning):
                    told = [value.kind.name, value.message, value.level]
                    self._warnings.append([self._made, k, name, *told])
                elif value is not None:
                    record[_statistic(k, name)] = value
        return record.tobytes()

    def _read(
        self, store: ChainStore
    ) -> Iterator[tuple[dict[str, np.ndarray], list[dict[str, Any]]]]:
        """Return the stored draws, and with the last of them set the chain to what follows."""
        methods = flatten_steps(self._inner)
        assert store.begun is not None
        names = list(store.begun.start)
        warned = {(draw, k, name): told for draw, k, name, *told in store.saved.warnings}
        for record in store.records():
            self._made += 1
            values = {name: np.array(record[_VALUE + name]) for name in names}
            stats: list[dict[str, Any]] = []
            for k, method in enumerate(methods):
                of_method: dict[str, Any] = {}
                for name, (kind, _) in method.stats_dtypes_shapes.items():
                    if np.dtype(kind) != object:
                        of_method[name] = record[_statistic(k, name)]
                        continue
                    told = warned.get((self._made, k, name))
                    # What is said of a whole chain is said at its end
                    if isinstance(method, SGMCMCStep) and self._made < self._last:
                        told = None
                    of_method[name] = told and SamplerWarning(WarningType[told[0]], *told[1:])
                stats.append(of_method)
            if self._made == store.saved.draws < self._last:
                self._go_on(store.saved.state)
            yield values, stats

    def _go_on(self, state: Any) -> None:
        self.sampling_state = state
        for method in flatten_steps(self._inner):
            if isinstance(method, SGMCMCStep):
                method.chain.last_draw = self._last


def _statistic(k: int, name: str) -> str:
    return f"statistic {k} {name}"


def _words(entropy: Any) -> list[int]:
    return [int(word) for word in np.ravel(np.asarray(entropy, dtype=object))]

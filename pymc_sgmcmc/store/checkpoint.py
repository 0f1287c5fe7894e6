"""A step method whose chains are kept on disk while they are sampled."""

from __future__ import annotations

import logging
import time

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from pymc.initial_point import PointType
from pymc.model import Model
from pymc.step_methods.compound import BlockedStep, CompoundStep, flatten_steps
from pymc.util import (
    RandomGenerator,
    RandomGeneratorState,
    get_state_from_generator,
    random_generator_from_state,
)

from pymc_sgmcmc.backends.workarounds import hook_into_pymc
from pymc_sgmcmc.chain.orphans import end_with_parent
from pymc_sgmcmc.checks import a_model, not_negative
from pymc_sgmcmc.step.notices import tell_log_likelihood
from pymc_sgmcmc.step.step import SGMCMCStep
from pymc_sgmcmc.store.chain_store import ChainStore
from pymc_sgmcmc.store.files import DamagedError, UnwrittenError, a_folder, release
from pymc_sgmcmc.store.fingerprint import differences, fingerprint, model_parts
from pymc_sgmcmc.store.formats import Begin, Records, layout_of, refuse_unkept

_log = logging.getLogger("pymc.sgmcmc")

# NumPy draws seeds of 128 bits where none is given: seeds of at least so much are not a user's
_DRAWN = 2**64

type Steps = BlockedStep | CompoundStep | Sequence[BlockedStep | CompoundStep]


def checkpoint(
    step: BlockedStep | CompoundStep | Sequence[BlockedStep | CompoundStep],
    path: str | Path,
    *,
    every: float = 10.0,
    after: str | Path | None = None,
    model: Model | None = None,
) -> Checkpoint:
    """Keep the chains of a step method on disk, so that a killed run goes on.

    Draws, statistics and the state of each chain are written to a folder while ``pm.sample`` runs.
    The same line, run again, returns what is there and goes on from it. The result has the bits
    of a run that was never killed, and a complete chain is not sampled again. With more
    ``draws=`` the chains go on for longer. ``chains=`` may be larger, and ``cores=`` may differ.

    Parameters
    ----------
    step : step method, or list of them
        For all variables of the model. A list, such as
        ``[sg.CoRVSGLD([beta]), pm.BinaryMetropolis([z])]``, is sampled in turn, as PyMC does.
    path : str or Path
        The folder of the run. Each chain has a folder in it.
    every : float, default 10
        Seconds between two states on disk. A kill loses at most these and the draw that is being
        made; tuning is part of a chain's first draw. 0 for a state after each draw.
    after : str or Path, optional
        The folder of an earlier run of the same variables, such as one of fewer rows. Each chain
        begins where one of that run ended, and is tuned from there: coordinates, step size and
        the anchor of gradients are those of the present data. The draws of that run are not
        among those of this one.
    model : pymc.Model, optional
        That of the context by default.

    Returns
    -------
    step method
        For ``pm.sample(step=...)``.

    Raises
    ------
    ValueError
        If the store is of another model, of other data, options, seeds or versions; if a variable
        is left to other step methods.
    NotImplementedError
        If a step method is one of a population of chains, such as ``pm.DEMetropolis``, or one of
        your own without a ``_state_class``.
    pymc.exceptions.SamplingError
        If a file is damaged, if another process or thread samples the same chain, or if nothing
        can be written when a chain begins. What was written is kept.

    Notes
    -----
    A store is kept by ``random_seed``: with another one it is refused. Without one the chains go
    on with the seeds that they began with, and a seed of 2**64 or more, as NumPy draws where none
    is given, counts as none. Models are compared by their graphs, shapes, types and
    data, options by their values; of your own functions a density or transform counts by its
    graph, a schedule by its step sizes, a whitening by what it makes of one root, and any other by
    its name alone. Where the disk is full or fails while a
    chain is sampled, the log says so; the run goes on, tries again, and returns all draws. Kill a
    run at any time, also inside a write: each file is whole or not there, and carries a checksum.
    No file is unpickled.

    A chain takes the room of its draws and of two states, each some copies of a position and what
    tuning keeps: a matrix of d x d numbers for d to 512, at most 16 MB of gradients at an anchor.

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
    return Checkpoint(step, path, every=every, after=after, model=model)


class Checkpoint(CompoundStep):
    """What :func:`checkpoint` returns: step methods whose draws are kept, or read."""

    def __init__(
        self,
        step: Steps,
        path: str | Path,
        *,
        every: float = 10.0,
        after: str | Path | None = None,
        model: Model | None = None,
    ) -> None:
        listed: list[Any] = list(step) if isinstance(step, list | tuple) else [step]
        for one in listed or [step]:
            if not isinstance(one, BlockedStep | CompoundStep):
                raise TypeError(
                    "step must be a step method, or a list of them, such as sg.MSGNHT(), got "
                    f"{one!r:.80}."
                )
            if isinstance(one, Checkpoint):
                raise ValueError("step is a checkpoint already. Pass the step methods themselves.")
        self._inner = listed[0] if len(listed) == 1 else CompoundStep(listed)
        self._flat: list[BlockedStep] = flatten_steps(self._inner)
        self._ours = [method for method in self._flat if isinstance(method, SGMCMCStep)]
        super().__init__(getattr(self._inner, "methods", [self._inner]))
        if model is None:
            model = next((m for x in self._flat if (m := getattr(x, "model", None))), None)
        self.model: Model = a_model(model)
        # Steps of PyMC alone have no hooks, and a run begins by letting go of the one before it
        hook_into_pymc(self.model, tell_log_likelihood)
        self.path = a_folder("path", path)
        self.every = not_negative("every", every, usual=10)
        self.after = None if after is None else a_folder("after", after)
        self._require_all_variables()
        # What the model was when its fingerprint was taken
        self._lines: dict[str, str] = {}
        self._parts: list[Any] = []
        # The chain's files, and those of its draws that are still to be returned
        self._store: Any = None
        self._stored: Iterator[np.void] = iter(())
        begun = [store.begun for store in _chains(self.path)]
        for chain in begun:
            self._require_same(chain)
        if self.after is not None and not begun:
            self._earlier()

    def _require_all_variables(self) -> None:
        sampled = {value for method in self._flat for value in method.vars}
        left = [v for v in self.model.value_vars if v not in sampled]
        foreign = [v.name for v in sampled if v not in self.model.values_to_rvs]
        if foreign:
            raise ValueError(
                f"model is none of the step methods': it has no '{min(foreign)}'. Leave it out, or "
                "pass the one that they were made for."
            )
        if left:
            names = ", ".join(f"'{self.model.values_to_rvs[value].name}'" for value in left)
            raise ValueError(
                f"{names}: sampled by none of the step methods of the checkpoint, which must keep "
                "the whole chain. Pass all of them in a list: sg.checkpoint([sg.CoRVSGLD([x]), "
                "pm.Metropolis([y])], path)."
            )
        refuse_unkept(self._flat)

    # ------------------------------------------------------------------ what the store is of

    def _fingerprint(self) -> dict[str, str]:
        """Return what the run is of; data are read again only where the model has changed."""
        parts = model_parts(self.model)
        if not self._lines or list(map(id, parts)) != list(map(id, self._parts)):
            self._lines, self._parts = fingerprint(self.model, self._flat), parts
        return self._lines

    def _require_same(self, begun: Any) -> None:
        differ = differences(begun.fingerprint, self._fingerprint())
        if differ:
            raise ValueError(
                f"The store '{self.path}' is of another run: {'; '.join(differ)}. Pass another "
                "path, or what the store was begun with."
            )

    def _require_seed(self, stored: RandomGeneratorState) -> bool:
        """Refuse another seed; return whether one was given."""
        keys = [tuple(rng.seed_seq_state["spawn_key"]) for rng in (stored, self._rng)]
        if keys[0] != keys[1]:
            raise DamagedError(
                f"The folder '{self._store.folder}' is a copy of another chain's, whose draws "
                "would be taken twice. Remove it: with the same random_seed the chain is run anew, "
                "with the same draws."
            )
        was, now = (_words(rng.seed_seq_state["entropy"]) for rng in (stored, self._rng))
        if was == now:
            return True
        if len(now) == 1 and now[0] >= _DRAWN:
            _log.info("Chain %s goes on with the seed that it began with.", self._number)
            return False
        given = "was begun without random_seed"
        if len(was) > 1 or was[0] < _DRAWN:
            given = f"was begun with random_seed={was if len(was) > 1 else was[0]}"
        raise ValueError(
            f"The store '{self.path}' {given}. Pass none to go on with its own, or another path."
        )

    def _require_start(self, begun: Begin, point: PointType) -> None:
        """Refuse initial values other than the stored chain's, where the seed is the same."""
        changed = [name for name, x in point.items() if not np.array_equal(x, begun.start[name])]
        if not changed or begun.after is not None:
            return
        names = {value.name: f"'{rv.name}'" for value, rv in self.model.values_to_rvs.items()}
        initvals = f"The initvals of {', '.join(names[name] for name in changed)}"
        if self._seeded:
            raise ValueError(
                f"{initvals} are others than those with which the store '{self.path}' was begun. "
                "Pass these, or another path."
            )
        _log.info("%s are not used: chain %s goes on from its own draws.", initvals, self._number)

    def _earlier(self) -> list[ChainStore]:
        """Return the chains of the earlier run that have draws."""
        assert self.after is not None
        stores = _chains(self.after)
        for store in stores:
            store.read()
        stores = [store for store in stores if store.saved.draws]
        if not stores or self.after == self.path:
            raise ValueError(
                f"after='{self.after}' must be the folder of another run that has draws."
            )
        return stores

    def _end_of_earlier(self, point: PointType) -> PointType:
        """Return where a chain of the earlier run ended."""
        stores = self._earlier()
        number = int(self._number.split("-")[-1])
        same = [store for store in stores if store.folder.name == f"chain-{self._number}"]
        end = (same or [stores[number % len(stores)]])[0].last()
        was, now = ({f"{name}{np.shape(x)}" for name, x in p.items()} for p in (end, point))
        if was != now:
            raise ValueError(
                f"after='{self.after}' is a run of other variables: {', '.join(sorted(was ^ now))}."
            )
        return {name: end[name].astype(np.asarray(x).dtype) for name, x in point.items()}

    # ------------------------------------------------------------------ PyMC's hooks

    def setup_chain(self, rng: RandomGenerator, tune: int, draws: int) -> None:
        """Look up what is stored of this chain."""
        end_with_parent()
        self._rng = get_state_from_generator(rng)
        # Of all generators that are spawned from one seed each has a key of its own
        self._number = "-".join(map(str, self._rng.seed_seq_state["spawn_key"])) or "0"
        self.let_go()
        store = self._store = ChainStore(self.path / f"chain-{self._number}")
        store.read()
        self._last, self._tune, self._made = tune + draws, tune, 0
        self._due = time.monotonic() + self.every
        self._failed = False  # the last write failed: the next failure is not logged again
        self._goes_on = False  # the next draw is the first that is made from a stored state
        self._kept = True  # this chain's draws are written
        try:
            self._look_up(store, rng, tune, draws)
        except BaseException:
            store.close()
            raise

    def _look_up(self, store: ChainStore, rng: RandomGenerator, tune: int, draws: int) -> None:
        """Take the chain, check what is stored of it, and set the step methods up for the rest."""
        is_whole = store.saved.draws >= self._last
        if not is_whole:
            with self._in_memory():
                store.open()
        self._stored, begun = iter(()), store.begun
        if begun is not None:
            self._require_same(begun)
            if self.after is not None and begun.after != str(self.after):
                raise ValueError(
                    f"The store '{self.path}' was begun with after={begun.after!r}, not "
                    f"'{self.after}'. Leave after out to go on with it, or pass another path."
                )
            if begun.tune != tune:
                raise ValueError(
                    f"The store '{self.path}' was begun with tune={begun.tune}, not {tune}. Pass "
                    f"tune={begun.tune}, or another path."
                )
            self._seeded = self._require_seed(begun.rng)
            with store.reading():
                rng = random_generator_from_state(begun.rng)
                self._records = Records(self._flat, begun.layout, store.saved.warnings)
        if store.saved.draws:
            _log.info(
                "Chain %s: %d of its %d draws are in the store, after %d of burn-in.",
                self._number,
                min(max(store.saved.draws - tune, 0), draws),
                draws,
                min(store.saved.draws, tune),
            )
            self._stored = store.records()
        if not is_whole:
            self._inner.setup_chain(rng, tune, draws)
            if (self.after if begun is None else begun.after) is not None:
                for method in self._ours:
                    method.chain.jitter = 0.0

    def let_go(self) -> None:
        """Release the chains of a run that was interrupted, for the processes of the next."""
        if self._store is not None:
            self._store.close()
        release(self.path)

    def step(self, point: PointType) -> tuple[PointType, list[dict[str, Any]]]:
        """Return the next draw that is stored, or make one and store it."""
        begun = self._store.begun
        try:
            if begun is not None and not self._made:
                self._require_start(begun, point)
            record = next(self._stored, None)
            if record is not None:
                return self._read(point, record)
            return self._step(self._store, point)
        except BaseException:
            self._store.close()
            raise

    def _read(self, point: PointType, record: np.void) -> tuple[PointType, list[dict[str, Any]]]:
        """Return a stored draw."""
        self._made += 1
        with self._store.reading("draws"):
            values, stats = self._records.read(self._made, record)
            values = {name: values[name] for name in point}
        if self._made < self._last:
            for method, of_method in zip(self._flat, stats, strict=True):
                # A warning about the whole chain comes with its last draw
                if isinstance(method, SGMCMCStep):
                    of_method["warning"] = None
            if self._made == self._store.saved.draws:
                # Before PyMC calls any other hook
                with self._store.reading():
                    self.sampling_state, self._store.saved.state = self._store.saved.state, None
                    for method in self._ours:
                        method.chain.last_draw = self._last
                self._goes_on = True
        return values, stats

    def _step(self, store: ChainStore, point: PointType) -> tuple[PointType, list[dict[str, Any]]]:
        """Make a draw, and store it."""
        if not self._made:
            # A chain that was killed before its first state starts from the same point again
            begun = store.begun or self._begin(store, point)
            point = {name: np.array(begun.start[name]) for name in point}
        with store.going_on() if self._goes_on else nullcontext():
            point, stats = self._inner.step(point)
        self._goes_on = False
        self._made += 1
        last = self._made == self._last
        record = self._records.write(self._made, point, stats)
        if self._kept:
            with self._in_memory(last=last):
                store.add(record)
                if last or time.monotonic() >= self._due:
                    self._due = time.monotonic() + self.every
                    store.save(self._made, self._records.warnings, self.sampling_state)
                    self._failed = False
        if last:
            store.close()
        return point, stats

    def _begin(self, store: ChainStore, point: PointType) -> Begin:
        """Return how a chain begins, and store it."""
        if self.after is not None:
            point = self._end_of_earlier(point)
        begun = Begin(
            fingerprint=self._fingerprint(),
            rng=self._rng,
            tune=self._tune,
            start={name: np.array(value) for name, value in point.items()},
            after=None if self.after is None else str(self.after),
            layout=layout_of(self._flat, point),
        )
        if self._kept:
            with self._in_memory():
                store.begin(begun)
        self._records = Records(self._flat, begun.layout, [])
        return begun

    @contextmanager
    def _in_memory(self, *, last: bool = False) -> Generator[None]:
        """Log a failed write and go on: an error would lose the draws in memory."""
        try:
            yield
        except UnwrittenError as error:
            # Other chains that have begun, in whatever processes, would lose their draws
            if not self._made and not any(self.path.glob("chain-*/begin")):
                raise
            # Without its beginning on disk no draw of a chain is written
            self._kept &= self._made > 0
            if last or not self._failed:
                alone = last or not self._kept
                kept = "stay in memory until a write succeeds"
                they = "are in the result alone" if alone else kept
                said = f"The run goes on. The other draws of chain {self._number} {they}."
                _log.warning("%s %s", error, said)
            self._failed = True

    def __getstate__(self) -> dict[str, Any]:
        # Open files, and what is read again where the step is sampled
        unsent: dict[str, Any] = {"_store": None, "_stored": iter(()), "_lines": {}, "_parts": []}
        return {**self.__dict__, **unsent}


def _chains(path: Path) -> list[ChainStore]:
    """Return the chains in a folder that have begun."""
    stores = [ChainStore(folder) for folder in sorted(path.glob("chain-*")) if folder.is_dir()]
    return [store for store in stores if store.begun is not None]


def _words(entropy: Any) -> list[int]:
    return [int(word) for word in np.ravel(np.asarray(entropy, dtype=object))]

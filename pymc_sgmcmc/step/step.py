"""PyMC's side of a sampler: arguments, chains, seeds, statistics, errors."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from inspect import Signature
from typing import Any, ClassVar

import numpy as np
import pytensor.tensor as pt

from pymc.initial_point import PointType
from pymc.logprob.transforms import Transform
from pymc.model import Model, modelcontext
from pymc.step_methods.compound import BlockedStep, Competence, StepMethodState
from pymc.step_methods.state import dataclass_state
from pymc.util import RandomGenerator
from pymc.vartypes import continuous_types
from pytensor.graph.basic import Variable
from rich.progress import TextColumn
from rich.table import Column

from pymc_sgmcmc.backends import jax_backend
from pymc_sgmcmc.backends.workarounds import (
    hook_into_pymc,
    settings_of_process,
    take_settings,
)
from pymc_sgmcmc.chain.memory import Place
from pymc_sgmcmc.chain.orphans import end_with_parent
from pymc_sgmcmc.chain.runner import Runner
from pymc_sgmcmc.chain.state import ChainState
from pymc_sgmcmc.checks import is_auto
from pymc_sgmcmc.kernel.engine import Engine, parts_of, same_objects
from pymc_sgmcmc.kernel.estimators import SVRG, ControlVariates, Plain
from pymc_sgmcmc.kernel.options import OwnWhitening
from pymc_sgmcmc.kernel.sampler import Sampler
from pymc_sgmcmc.kernel.tables import RowMemory
from pymc_sgmcmc.model.data_checks import check_coords
from pymc_sgmcmc.model.graphs import depends_on
from pymc_sgmcmc.model.initial_point import is_given
from pymc_sgmcmc.model.properties import refuse_uninformed
from pymc_sgmcmc.model.support import kind_of_support
from pymc_sgmcmc.model.tensor_model import in_tensors
from pymc_sgmcmc.schedules import Schedule, constant, records, step_sizes
from pymc_sgmcmc.step import arguments, statistics
from pymc_sgmcmc.step.notices import tell_compilation, tell_log_likelihood, tell_memory, tell_others
from pymc_sgmcmc.step.options import signature_of, with_options
from pymc_sgmcmc.step.rows import Rows, sampled_rows
from pymc_sgmcmc.tuning.beside_others import Companion, joint_start, skips_draw, times_of_tuning
from pymc_sgmcmc.tuning.by_hand import start_by_hand
from pymc_sgmcmc.tuning.report import LoggedLines
from pymc_sgmcmc.tuning.run import Tuning

_NOT_FORKED = (
    "Pass backend='jax' or mp_ctx='forkserver' to pm.sample, for which a script needs the guard "
    "`if __name__ == '__main__':`, or pass cores=1."
)


@dataclass_state
class SGMCMCState(StepMethodState):
    """All that belongs to one chain."""

    chain: ChainState


class SGMCMCStep(Sampler, BlockedStep):
    r"""Base class of the stochastic-gradient samplers.

    A sampler is a subclass with two methods, :meth:`update` and, if its state is more than
    the position, :meth:`initial_extra`. All else is here: the model's potential U of the
    full data set, estimated from minibatches; coordinates; compilation; chains and seeds;
    statistics; errors.

    Parameters
    ----------
    <options>

    Raises
    ------
    <raises>

    <statistics>
    """

    name = "sgmcmc"
    stats_dtypes_shapes: dict[str, tuple[Any, Any]] = statistics.STATISTICS
    default_tune_steps: ClassVar[int] = 100
    __signature__: ClassVar[Signature]
    _state_class = SGMCMCState

    left_out: frozenset[str]
    """Names of deterministics of all rows, which draws have only where ``var_names`` asks."""

    # What is compiled, and what moves the chain in this process
    _engine: Engine | None
    _runner: Runner | None
    _recorder: statistics.Recorder
    # The arrays of the model; None in a process that has just got the step
    _data: list[np.ndarray] | None
    # The rows of updates, and memory for many of them that forked processes share
    _rows: Rows
    _row_memory: RowMemory | None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.stats_dtypes_shapes = statistics.declared_by(cls.__name__, cls.own_statistics)
        cls.__doc__ = with_options(cls.__doc__)
        cls.__signature__ = signature_of(cls)

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Refuse what cannot be sampled where PyMC's own errors do not say what to do."""
        variables = args[0] if args else kwargs.get("vars")
        arguments.refuse_unfit(kwargs.get("model"), variables)
        return super().__new__(cls, *args, **kwargs)

    def __init__(
        self,
        vars: Any = None,
        *,
        step_size: str | float | Schedule = "auto",
        thin: str | int = "auto",
        gradient: str | Plain | ControlVariates | SVRG = "auto",
        batches: str | int = "auto",
        batch: str = "shuffled",
        batch_size: str | int | None = "auto",
        batch_dim: str | Mapping[str, int] | None = None,
        transforms: str | Mapping[str, Transform | None] | None = None,
        centring: str | None = "auto",
        scale: str | Mapping[str, Any] | OwnWhitening | None = "auto",
        temperature: float = 1.0,
        backend: str = "auto",
        compile_kwargs: Mapping[str, Any] | None = None,
        model: Model | None = None,
        rng: RandomGenerator = None,
        initial_point: PointType | None = None,
        blocked: bool = True,
        **unknown: Any,
    ) -> None:
        arguments.refuse_unknown(type(self), unknown)
        self.model = modelcontext(model)
        hook_into_pymc(self.model, tell_log_likelihood)
        self.vars = arguments.sampled_values(self.model, vars)
        self.names = [self.model.values_to_rvs[value].name for value in self.vars]
        # A model of pymc.dims is read and compiled as a model of tensors
        model = in_tensors(self.model)
        self._values = [model.rvs_to_values[model[name]] for name in self.names]
        self.kinds = arguments.kinds_of_support(model, self._values)
        policy = self.policy()
        asked = {
            "step_size": step_size, "thin": thin, "gradient": gradient, "batches": batches,
            "batch": batch, "transforms": transforms, "centring": centring, "scale": scale,
            "temperature": temperature, "backend": backend, "compile_kwargs": compile_kwargs,
        }  # fmt: skip
        self.options = arguments.checked_options(
            type(self).__name__, policy, model, self.names, asked
        )
        self.blocked = blocked
        # Without tuning nothing chooses how many batches are averaged
        by_default = is_auto(batch_size) and batch_dim is None
        all_rows = by_default and self.options.is_complete()
        self._batches_asked = (None if all_rows else batch_size), batch_dim
        self._look_at_rows()
        self._of_variables = statistics.of_variables(
            model,
            self.names,
            temperature=policy.has_temperature,
            noise=self._rows.batch_size > 0 and not self.options.is_complete(),
            centring=self.options.centring,
        )
        own: dict[str, tuple[Any, Any]] = dict.fromkeys(self._of_variables, (np.float64, []))
        self.stats_dtypes_shapes = {**type(self).stats_dtypes_shapes, **own}
        self.stats_dtypes = [{name: x for name, (x, _) in self.stats_dtypes_shapes.items()}]
        tell_memory(model, self._values)
        tell_compilation(model, self.left_out)

        self.rng = arguments.checked_rng(rng)
        self.tune = True
        self._engine = self._runner = None
        self._logged = LoggedLines()
        self._new_chain(0, 0)

    def require_kinds(self, *kinds: str) -> None:
        """Refuse variables whose support is not of one of these kinds.

        Parameters
        ----------
        *kinds : str
            As in ``gradient.variables.kinds``.

        Raises
        ------
        NotImplementedError
            If there is such a variable, or in θ a bound that is another one of them.
        """
        method = type(self).__name__
        for name, kind in zip(self.names, self.kinds, strict=True):
            if kind not in kinds:
                raise NotImplementedError(
                    f"{method} samples variables of the kinds {', '.join(kinds)}; '{name}' is of "
                    f"the kind {kind}. Sample it by another step: step=[sg.{method}([...]), "
                    f"sg.CoRVSGLD([{name}])]."
                )
        if self.policy().whitened:
            return
        rvs = [self._read_model.values_to_rvs[value] for value in self._values]
        for rv in rvs:
            _, *bounds = kind_of_support(self._read_model.rvs_to_transforms[rv], rv)
            if depends_on([pt.as_tensor(x) for x in bounds if x is not None], set(rvs)):
                raise NotImplementedError(
                    f"A bound of '{rv.name}' depends on a variable that {method} moves at the same "
                    "time, which makes the law wrong at every step size. Take sg.CoRVSGLD."
                )

    # ------------------------------------------------------------------ PyMC's hooks

    def setup_chain(self, rng: RandomGenerator, tune: int, draws: int) -> None:
        """Start a chain of ``tune + draws`` draws with its own generator."""
        super().setup_chain(rng, tune, draws)
        end_with_parent()
        if self.options.backend != "numba":
            jax_backend.refuse_inherited(_NOT_FORKED)
        self.look_again()
        self._new_chain(tune, draws)

    def step(self, point: PointType) -> tuple[PointType, list[dict[str, Any]]]:
        """Take ``thin`` updates from ``point``, after those that a schedule does not record."""
        engine = self._engine_at(point)
        if self._chain.psi is None and not self.options.is_complete():
            if skips_draw(self._read_model, engine.posterior.others, point, self._chain):
                self._chain.draw += 1
                return dict(point), [statistics.nothing_measured(self.stats_dtypes_shapes)]
            point = joint_start(engine, point, self._chain, self.model)
        # In a worker process the point is shared memory, which the next draw overwrites
        others = [np.array(point[value.name]) for value in engine.posterior.others]
        runner = self._runner_at(point, others)
        state, schedule = self._chain, self.options.step_size
        companion = self._companion(others)
        if companion is not None:
            runner = companion.before_draw(runner, others)
        h: Any = runner.settings.step_size if schedule is None else schedule
        if isinstance(h, constant):
            h = h.h
        explored = np.zeros(2, int)
        try:
            while not records(schedule, state.updates, runner.settings.thin):
                unrecorded = runner.advance(h, runner.settings.thin, others)
                explored += unrecorded.rejected, unrecorded.tamed
            if companion is not None:
                runner, h, draw = companion.draw(runner, h, others)
            else:
                draw = runner.advance(h, runner.settings.thin, others)
        except KeyboardInterrupt:
            self._recorder.interrupted(runner)
            raise
        self._runner = runner
        stats = self._recorder.record(runner, draw, others, explored)
        values = zip((value.name for value in self.vars), state.values, strict=True)
        return {**point, **dict(values)}, [stats]

    @staticmethod
    def competence(var: Any, has_grad: bool) -> Competence:
        """Continuous variables with a gradient; never preferred, so never chosen unasked."""
        if has_grad and var.dtype in continuous_types:
            return Competence.COMPATIBLE
        return Competence.INCOMPATIBLE

    @staticmethod
    def _progressbar_config(n_chains: int = 1) -> tuple[list[TextColumn], dict[str, list[Any]]]:
        # CompoundStep merges columns by their header: these must be ours alone
        columns = [
            TextColumn("{task.fields[sg_updates]}", table_column=Column("Updates", ratio=1)),
            TextColumn("{task.fields[sg_noise]:.1%}", table_column=Column("Noise", ratio=1)),
            TextColumn("{task.fields[sg_rejected]}", table_column=Column("Rejected", ratio=1)),
        ]
        fields: dict[str, list[Any]] = {
            name: [0] * n_chains for name in ("sg_updates", "sg_noise", "sg_rejected")
        }
        return columns, fields

    @staticmethod
    def _make_progressbar_update_functions() -> tuple[Callable[[dict[str, Any]], Any], ...]:
        def update_stats(stats: dict[str, Any]) -> dict[str, Any]:
            return {
                "sg_updates": stats["thin"],
                "sg_noise": max(stats["noise_ratio"], 0.0),
                "sg_rejected": stats["rejected_updates"],
                "failing": stats["diverging"],
            }

        return (update_stats,)

    def __getstate__(self) -> dict[str, Any]:
        # Compiled functions and data are made anew where the step is sampled
        if self._runner is not None:
            self._runner.settle()
        left = dict.fromkeys(["_engine", "_runner", "_row_memory", "_data"])
        return {**self.__dict__, **left, "_settings": settings_of_process()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        take_settings(*state.pop("_settings"))
        self.__dict__.update(state)
        hook_into_pymc(self.model, tell_log_likelihood)

    # ------------------------------------------------------------------ the chain's state

    @property
    def chain(self) -> ChainState:
        """The chain between two draws; setting it makes the next draw go on from there."""
        if self._runner is not None:
            self._runner.settle()
        return self._chain

    @chain.setter
    def chain(self, state: ChainState) -> None:
        self._chain = state
        self._runner = None

    @property
    def centring_weights(self) -> dict[str, np.ndarray]:
        """λ of each variable of a hierarchy, by its name, in the chain sampled last.

        Each is shaped as the coordinates. λ is the share of the data in what is known about an
        element, and 0 or 1 for vectors. The dict is empty before a chain is tuned, and
        where other processes sampled the chains.
        """
        scales = self._chain.scales
        return self._engine.weights(scales) if self._engine is not None and scales else {}

    def _new_chain(self, tune: int, draws: int) -> None:
        self.chain = ChainState.new(self.rng, tune, draws, self._rows.order)
        self._recorder = statistics.Recorder(
            self.policy(),
            tunes_step_size=self.options.step_size is None,
            batch_size=self._rows.batch_size,
            of_variables=self._of_variables,
        )
        # The steps of a compound step look for a common start again
        self.model.value_vars[0].tag.begin_together = {}

    def look_again(self) -> None:
        """Look at the rows anew if data were set since, or terms added.

        A process that is handed the step cannot tell what was set before, so that PyMC's hook calls
        this in the first process, before the chains.
        """
        now = parts_of(in_tensors(self.model))
        if self._data is None:
            self._data = now
        elif not same_objects(now, self._data):
            self._look_at_rows()
            self._engine = None

    def _look_at_rows(self) -> None:
        data = parts_of(model := in_tensors(self.model))
        self._values = [model.rvs_to_values[model[name]] for name in self.names]
        self._rows, self._row_memory = sampled_rows(model, self._batches_asked, self.options)
        self._data = data  # after the look: what it refuses is looked at again
        self._read_model, self.left_out = self._rows.model, self._rows.left_out
        self.options = replace(self.options, batch_dim=self._rows.dim, batch_size=self._rows.size)

    def check_kept(
        self, names: Collection[str], others: Collection[Variable], temperatures: Collection[float]
    ) -> None:
        """Begin a run, and refuse draws of these variables that PyMC could not put together.

        ``others`` are the values that PyMC's step methods sample, ``temperatures`` those of all.
        """
        self._logged = LoggedLines()
        model = in_tensors(self.model)
        check_coords(model, names)
        tell_others(model, [self.model.values_to_rvs[x].name for x in others], temperatures)

    # ------------------------------------------------------------------ one draw

    def _engine_at(self, point: PointType) -> Engine:
        if self._engine is None:
            if self.options.backend != "numba":
                jax_backend.refuse_inherited(_NOT_FORKED)
            self._engine = Engine(
                self._read_model, self._values, self.options, point,
                sampler=self, row_memory=self._row_memory,
            )  # fmt: skip
        return self._engine

    def _runner_at(self, point: PointType, others: list[np.ndarray]) -> Runner:
        """Start the chain, resume it from its state, or follow a point that others moved."""
        engine, state = self._engine_at(point), self._chain
        if state.psi is None:
            refuse_uninformed(self._read_model)
            place = Place(others, *engine.express(point))
            if self.options.is_complete():
                if is_given(self._read_model, point, self._values):
                    state.jitter = 0.0
                self._runner = start_by_hand(engine, self.options, state, place, point)
            else:
                later = others and times_of_tuning(state.tuning_draws)
                tuning = Tuning(engine, self.options, state, [place], self._logged)
                self._runner = tuning.run(trials=not later)
            state.backend = engine.backend
            self._require_steps_to_the_end(self._runner)
            return self._runner
        if self._runner is None:
            engine.use(state.backend or engine.backend)
            self._runner = Runner(engine, state)
            self._require_steps_to_the_end(self._runner)
        self._follow(self._runner, point)
        return self._runner

    def _require_steps_to_the_end(self, runner: Runner) -> None:
        """Refuse a schedule that has no step size for the chain's last update."""
        schedule, state = self.options.step_size, self._chain
        last = state.last_draw * runner.settings.thin - 1
        if schedule is not None and last >= state.updates:
            step_sizes(schedule, np.array([last]))

    def _follow(self, runner: Runner, point: PointType) -> None:
        """Go on from PyMC's point, if others moved it or what its coordinates depend on."""
        engine, state = runner.engine, runner.state
        moved = bool(state.values) and any(
            # PyMC passes on the arrays of the last draw where nothing else moves them
            (now := point[value.name]) is not was and not np.array_equal(now, was)
            for value, was in zip(self._values, state.values, strict=True)
        )
        if moved or any(engine.depends_on_others):
            whitening = runner.settings.whitening()
            phi = engine.expressed(point, state.scales)
            if not moved:
                # A simplex's total, say, is no part of PyMC's values
                both = zip(phi, runner.phi(), engine.depends_on_others, strict=True)
                phi = [x if depends else was for x, was, depends in both]
            runner.restart(whitening.to_psi(phi, whitening.arrays), state.extra)

    def _companion(self, others: list[np.ndarray]) -> Companion | None:
        """Return what tunes the chain again beside other step methods, in tuning draws."""
        tuning = self._chain.draw < self._chain.tuning_draws
        if not others or not tuning or self.options.is_complete():
            return None
        assert self._engine is not None
        return Companion(self._engine, self.options, self._logged)


SGMCMCStep.__doc__ = with_options(SGMCMCStep.__doc__)
SGMCMCStep.__signature__ = signature_of(SGMCMCStep)

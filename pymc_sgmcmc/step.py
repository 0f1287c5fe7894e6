"""PyMC's side of a sampler: arguments, chains, seeds, statistics, errors."""

from __future__ import annotations

import os

from collections.abc import Callable, Mapping
from inspect import Signature
from typing import Any, ClassVar

import numpy as np

from pymc.exceptions import SamplingError
from pymc.initial_point import PointType
from pymc.logprob.transforms import Transform
from pymc.model import Model, modelcontext
from pymc.stats.convergence import SamplerWarning
from pymc.step_methods.compound import BlockedStep, Competence, StepMethodState
from pymc.step_methods.state import RandomGeneratorState, dataclass_state
from pymc.util import RandomGenerator, get_random_generator
from pymc.vartypes import continuous_types
from pytensor.tensor.variable import TensorVariable
from rich.progress import TextColumn
from rich.table import Column

from pymc_sgmcmc import arguments, jax_backend
from pymc_sgmcmc.adapt import Requested, adapt, at_anchor
from pymc_sgmcmc.adaptation import Adaptation
from pymc_sgmcmc.blocks import Blocks
from pymc_sgmcmc.engine import Engine, Settings
from pymc_sgmcmc.gradients import SVRG, ControlVariates, Plain
from pymc_sgmcmc.kept import Kept, arrays
from pymc_sgmcmc.minibatch import BATCH_SCHEMES, check_minibatches
from pymc_sgmcmc.monitor import Monitor, final_warning
from pymc_sgmcmc.noise import Noise
from pymc_sgmcmc.options import signature_of, with_options
from pymc_sgmcmc.runner import Draw, Runner
from pymc_sgmcmc.transition import Extra, Gradient
from pymc_sgmcmc.tuning.policy import Policy
from pymc_sgmcmc.tuning.schedules import Schedule, as_schedule, constant, explores, step_sizes
from pymc_sgmcmc.untuned import start_untuned

__all__ = ["SGMCMCState", "SGMCMCStep"]

# A chain whose every update is rejected for so many draws will not recover
_LARGEST_STUCK = 10

_STATISTICS: dict[str, tuple[Any, Any]] = {
    "step_size": (np.float64, []),
    "weight": (np.float64, []),
    "thin": (np.int64, []),
    "batches": (np.int64, []),
    "batch_logp": (np.float64, []),
    "grad_norm": (np.float64, []),
    "config_temperature": (np.float64, []),
    "noise_ratio": (np.float64, []),
    "diverging": (bool, []),
    "rejected_updates": (np.int64, []),
    "warning": (SamplerWarning, None),  # the type that NUTS declares: PyMC wants the same
}


@dataclass_state
class SGMCMCState(StepMethodState):
    """All that belongs to one chain."""

    noise_rng: RandomGeneratorState
    batch_rng: RandomGeneratorState
    row_order: int
    position: list[np.ndarray] | None
    extra: dict[str, list[np.ndarray]]
    scales: list[np.ndarray]
    values: list[np.ndarray]
    origin: list[np.ndarray]
    adaptation: Adaptation | None
    updates: int
    draw: int
    last_draw: int
    tuning_draws: int
    rejected: int
    stuck: int
    next_refresh: int
    monitor: Monitor


class SGMCMCStep(BlockedStep):
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
    ValueError, TypeError
        If an argument is outside its range or names a variable that is not sampled.
    NotImplementedError
        If the model has what cannot be sampled: variables of ``pymc.dims``, unobserved
        variables on a minibatch.
    pymc.exceptions.SamplingError
        While sampling: if the density is not finite at the start, or if updates stay
        non-finite.

    Notes
    -----
    Statistics of each draw: ``step_size`` (of its last update), ``thin`` (its updates),
    ``batches`` (averaged for one gradient), ``weight`` (the sum of its step sizes),
    ``batch_logp`` (log density estimated from a fresh batch), ``grad_norm`` (Euclidean norm of
    the gradient estimated from it), ``config_temperature`` (mean over coordinates of ψ_i ĝ_i,
    on average 1 under the exact law), ``noise_ratio`` (relative widening of the variances by
    gradient noise, from two fresh batches), ``rejected_updates`` (updates that were not
    finite, for which the state was kept), ``diverging`` (whether there were any) and
    ``warning`` (which PyMC logs after sampling and keeps out of the result).
    """

    name = "sgmcmc"
    stats_dtypes_shapes: ClassVar[dict[str, tuple[Any, Any]]] = dict(_STATISTICS)
    own_statistics: ClassVar[tuple[str, ...]] = ()
    """Names of the statistics that :meth:`statistics` returns."""
    default_transforms: ClassVar[str] = "lipschitz"
    default_tune_steps: ClassVar[int] = 100
    __signature__: ClassVar[Signature]
    _state_class = SGMCMCState

    # The chain in this process; what SGMCMCState lists of it is kept in _stored without one
    _engine: Engine | None
    _runner: Runner | None
    _stored: dict[str, Any]
    values: list[np.ndarray]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own: dict[str, tuple[Any, Any]] = {n: (np.float64, []) for n in cls.own_statistics}
        cls.stats_dtypes_shapes = {**_STATISTICS, **own}
        cls.__doc__ = with_options(cls.__doc__)
        cls.__signature__ = signature_of(cls.__init__)

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Refuse a model or a list without variables, of which PyMC names no cure."""
        variables = args[0] if args else kwargs.get("vars")
        arguments.refuse_nothing(modelcontext(kwargs.get("model")), variables)
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
        transforms: str | Mapping[str, Transform | None] | None = None,
        scale: str | Mapping[str, Any] | None = "auto",
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
        self.vars = arguments.sampled_values(self.model, vars)
        names = [self.model.values_to_rvs[value].name for value in self.vars]
        automatic = isinstance(step_size, str) and step_size == "auto"
        schedule = None if automatic else as_schedule(step_size)
        if schedule is not None:
            step_sizes(schedule, np.arange(2))
        backend, compile_kwargs = arguments.checked_backend(backend, compile_kwargs)
        if transforms is None:
            transforms = self.default_transforms
        self.requested = Requested(
            step_size=schedule,
            thin=arguments.positive_int_or_auto("thin", thin, usual=20),
            scale=arguments.checked_scale(scale, names),
            gradient=arguments.checked_gradient(gradient, (Plain, ControlVariates, SVRG)),
            batches=arguments.positive_int_or_auto("batches", batches, usual=1) or "auto",
            policy=self.policy(),
        )
        self.settings = Settings(
            batch=arguments.one_of("batch", batch, BATCH_SCHEMES),
            transforms=arguments.checked_transforms(transforms, names),
            temperature=arguments.positive("temperature", temperature, usual=1.0),
            backend=backend,
            compile_kwargs=compile_kwargs,
        )
        self.blocked = blocked
        check_minibatches(self.model)

        self.rng = get_random_generator(rng)
        self.tune = True
        self._pid = os.getpid()
        self._engine = None
        self._new_chain(0, 0)

    # ------------------------------------------------------------------ the algorithm

    def policy(self) -> Policy:
        """Return how the step size is tuned; by default as for a first-order method."""
        return Policy(step_size=0.04, adapted=False)

    def initial_extra(
        self, position: list[np.ndarray], rng: np.random.Generator
    ) -> dict[str, list[np.ndarray]]:
        """Draw the state beyond the position at the start of a chain.

        Parameters
        ----------
        position : list of ndarray
            The start, one array for each block.
        rng : numpy.random.Generator
            The chain's generator.

        Returns
        -------
        dict
            Name to one array for each block, such as a momentum.
        """
        return {}

    def update(
        self,
        position: Blocks,
        extra: Extra,
        gradient: Gradient,
        step_size: Any,
        noise: Noise,
    ) -> tuple[Blocks, Extra]:
        """One update, in symbols.

        Parameters
        ----------
        position : Blocks
            The position.
        extra : dict of Blocks
            The further state.
        gradient : callable
            Estimates ∇U at a position, U of the full data set; every call inside one
            update uses the same rows. ``gradient.variance`` is what is known of its noise.
        step_size : TensorVariable or Blocks
            h, a scalar; where ``policy().adapted``, possibly one for each coordinate.
        noise : Noise
            Source of fresh noise.

        Returns
        -------
        position, extra
            The next state.
        """
        raise NotImplementedError(f"{type(self).__name__} must define update().")

    def statistics(self, extra: Extra) -> Mapping[str, TensorVariable]:
        """Scalars to record with each draw, named in ``own_statistics``."""
        return {}

    def widening(self, step_size: Any, variance: Any, known: Any) -> Any:
        """Relative excess of a unit Gaussian's variance through gradient noise.

        Parameters
        ----------
        step_size : TensorVariable or Blocks
            h.
        variance : Blocks
            Variance of the gradient estimate in each coordinate.
        known : Blocks or float
            What of it :meth:`update` makes up for.
        """
        return step_size * (variance - known) / 2

    # ------------------------------------------------------------------ PyMC's hooks

    def setup_chain(self, rng: RandomGenerator, tune: int, draws: int) -> None:
        """Start a chain of ``tune + draws`` draws with its own generator."""
        super().setup_chain(rng, tune, draws)
        if self.settings.backend != "numba":
            jax_backend.refuse_inherited(self._pid)
        if self._engine is not None and self._engine.is_stale():
            check_minibatches(self.model)
            self._engine = None
        self._new_chain(tune, draws)

    def step(self, point: PointType) -> tuple[PointType, list[dict[str, Any]]]:
        """Take ``thin`` updates from ``point``."""
        # In a worker process the point is shared memory, which the next draw overwrites
        others = [np.array(point[value.name]) for value in self._engine_at(point).posterior.others]
        runner = self._runner_at(point, others)
        adaptation = runner.adaptation
        if adaptation.refresh is not None:
            self._refresh_anchor(runner, others)
        schedule = self.requested.step_size
        h: Any = adaptation.step_size if schedule is None else schedule
        if isinstance(h, constant):
            h = h.h
        while explores(schedule, runner.updates):
            runner.advance(h, adaptation.thin, others)
        draw = runner.advance(h, adaptation.thin, others)
        self.values = [np.array(value) for value in draw.values]
        self.draw += 1
        self._count(runner, draw)
        stats: dict[str, Any] = {
            **draw.statistics,
            "thin": adaptation.thin,
            "batches": adaptation.batches,
            "weight": draw.weight,
            "diverging": draw.rejected > 0,
            "rejected_updates": draw.rejected,
            "warning": self._final_warning(runner) if self.draw == self.last_draw else None,
        }
        names = [value.name for value in self.vars]
        return {**point, **dict(zip(names, self.values, strict=True))}, [stats]

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
            TextColumn("{task.fields[sg_step]:0.2e}", table_column=Column("SG step", ratio=1)),
            TextColumn("{task.fields[sg_grad]:0.2e}", table_column=Column("|∇U|", ratio=1)),
            TextColumn("{task.fields[sg_rejected]}", table_column=Column("Rejected", ratio=1)),
        ]
        fields: dict[str, list[Any]] = {
            name: [0] * n_chains for name in ("sg_step", "sg_grad", "sg_rejected")
        }
        return columns, fields

    @staticmethod
    def _make_progressbar_update_functions() -> tuple[Callable[[dict[str, Any]], Any], ...]:
        def update_stats(stats: dict[str, Any]) -> dict[str, Any]:
            return {
                "sg_step": stats["step_size"],
                "sg_grad": stats["grad_norm"],
                "sg_rejected": stats["rejected_updates"],
                "failing": stats["diverging"],
            }

        return (update_stats,)

    @property
    def sampling_state(self) -> SGMCMCState:
        """All that a chain needs to go on, bit for bit."""
        if self._runner is not None:
            self._runner.settle()
        state: SGMCMCState = super().sampling_state
        return state

    @sampling_state.setter
    def sampling_state(self, state: SGMCMCState) -> None:
        BlockedStep.sampling_state.fset(self, state)

    def __getstate__(self) -> dict[str, Any]:
        # Compiled functions and data are made anew where the step is sampled
        if self._runner is not None:
            self._runner.settle()
        stored = {name: getattr(self, name) for name in self._stored}
        return {**self.__dict__, "_engine": None, "_runner": None, "_stored": stored}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._pid = os.getpid()

    # ------------------------------------------------------------------ the chain's state

    def _new_chain(self, tune: int, draws: int) -> None:
        seeds = self.rng.integers(0, 2**63, size=9).tolist()
        # A fifth faster than NumPy's default at drawing normals, which are most of the cost
        self.noise_rng = np.random.Generator(np.random.SFC64(seeds[:4]))
        self.batch_rng = np.random.Generator(np.random.SFC64(seeds[4:8]))
        self.row_order = int(seeds[8])
        self._runner = None
        self._stored = {
            "position": None, "extra": {}, "origin": [], "scales": [], "adaptation": None,
            "updates": 0,
        }  # fmt: skip
        self.values = []
        self.draw = self.stuck = self.rejected = self.next_refresh = 0
        self.tuning_draws = tune
        self.last_draw = tune + draws
        self.monitor = Monitor(draws)

    position = Kept[list[np.ndarray] | None](
        lambda runner: arrays(runner.psi),
        "ψ, one array for each block; None before the first draw of a chain.",
    )
    extra = Kept[dict[str, list[np.ndarray]]](
        lambda runner: {name: arrays(parts) for name, parts in runner.extra.items()},
        "The algorithm's further state.",
    )
    origin = Kept[list[np.ndarray]](
        lambda runner: runner.origin,
        "ψ about which the configurational temperature is taken.",
    )
    scales = Kept[list[np.ndarray]](
        lambda runner: runner.scales,
        "Scales of the coordinates that have one.",
    )
    adaptation = Kept[Adaptation | None](
        lambda runner: runner.adaptation,
        "What tuning found, or the user set; None before the first draw of a chain.",
    )
    updates = Kept[int](lambda runner: runner.updates, "Updates since the chain's first.")

    def _store(self, name: str, value: Any) -> None:
        """Set a part of the state: the next draw goes on from there."""
        if self._runner is not None:
            self._runner.settle()
            self._stored = {key: getattr(self, key) for key in self._stored}
            self._runner = None
        self._stored[name] = value

    # ------------------------------------------------------------------ one draw

    def _engine_at(self, point: PointType) -> Engine:
        if self._engine is None:
            self._engine = Engine(self.model, self.vars, self, self.settings, point)
        return self._engine

    def _runner_at(self, point: PointType, others: list[np.ndarray]) -> Runner:
        """Start the chain, take it up where it was stored, or follow a point that was moved."""
        engine = self._engine_at(point)
        if self._runner is None:
            if self._stored["position"] is None:
                self._runner = self._started(engine, point, others)
            else:
                stored = self._stored
                self._runner = self._make_runner(
                    stored["adaptation"], stored["position"], stored["scales"],
                    stored["extra"], stored["origin"],
                )  # fmt: skip
                self._runner.updates = stored["updates"]
        elif self.values and any(
            not np.array_equal(point[value.name], was)
            for value, was in zip(self.vars, self.values, strict=True)
        ):
            phi = engine.expressed(point, self._runner.scales)
            whitening = self._runner.adaptation.whitening()
            psi = whitening.to_psi(phi, whitening.arrays)
            self._runner.restart(psi, self._runner.extra)
        return self._runner

    def _make_runner(
        self,
        adaptation: Adaptation,
        psi: list[np.ndarray],
        scales: list[np.ndarray],
        extra: dict[str, list[np.ndarray]] | None = None,
        origin: list[np.ndarray] | None = None,
    ) -> Runner:
        assert self._engine is not None
        if extra is None:
            extra = self.initial_extra(psi, self.noise_rng)
        if not origin:
            origin = [np.zeros_like(x) for x in psi]
        return Runner(
            self._engine, adaptation, psi, extra, origin, scales,
            self.noise_rng, self.batch_rng, self.row_order,
        )  # fmt: skip

    def _started(self, engine: Engine, point: PointType, others: list[np.ndarray]) -> Runner:
        """Start a chain: tuned where the user left anything to tuning."""
        phi, scales = engine.express(point)
        if not self.requested.is_complete():
            return adapt(
                engine,
                self.requested,
                phi,
                scales,
                others,
                self.rng,
                self.row_order,
                self._make_runner,
            )
        return start_untuned(
            engine, self.requested, phi, scales, others, self.rng, self._make_runner
        )

    def _refresh_anchor(self, runner: Runner, others: list[np.ndarray]) -> None:
        """Take the chain's position as the anchor where it is time to."""
        adaptation = runner.adaptation
        assert adaptation.refresh is not None
        if runner.updates < self.next_refresh:
            return
        self.next_refresh = runner.updates + adaptation.refresh
        engine, phi = runner.engine, runner.phi()
        potential = engine.potential()
        potential.set_fixed(
            [*engine.place([*runner.scales, *others]), *runner.data, *runner.full_tables()]
        )
        runner.set_anchor(
            phi, *at_anchor(potential, adaptation, phi, blocks=bool(adaptation.anchor_blocks))
        )

    def _count(self, runner: Runner, draw: Draw) -> None:
        if self.draw == self.tuning_draws and runner.adaptation.root is None:
            runner.set_origin(arrays(runner.psi))
        if self.draw > self.tuning_draws:
            self.rejected += draw.rejected
            self.monitor.add(runner.away(), draw.gradient, draw.statistics["noise_ratio"])
        self.stuck = self.stuck + 1 if draw.rejected == runner.adaptation.thin else 0
        if self.stuck == _LARGEST_STUCK:
            h = draw.statistics["step_size"]
            raise SamplingError(
                f"The chain is stuck at draw {self.draw}: all updates of the last "
                f"{_LARGEST_STUCK} draws gave non-finite values, with the variable "
                f"'{self._furthest(runner)}' furthest out, at step size {h:g}. Pass a smaller "
                "step_size, or tighter priors."
            )

    def _furthest(self, runner: Runner) -> str:
        sizes = [float(np.max(np.abs(x), initial=0.0)) for x in runner.phi()]
        name: str = runner.engine.posterior.coordinates[int(np.argmax(sizes))].name
        return name

    def _final_warning(self, runner: Runner) -> SamplerWarning | None:
        updates = max(self.last_draw - self.tuning_draws, 1) * runner.adaptation.thin
        policy = self.requested.policy
        return final_warning(
            runner.adaptation.warnings,
            self.monitor if policy.second_moments else None,
            self.rejected,
            updates,
            absorbed=policy.widening is None,
        )


SGMCMCStep.__doc__ = with_options(SGMCMCStep.__doc__)
SGMCMCStep.__signature__ = signature_of(SGMCMCStep.__init__)

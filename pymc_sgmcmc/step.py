"""PyMC's side of a sampler: arguments, chains, seeds, statistics, errors."""

from __future__ import annotations

import os

from collections.abc import Callable, Mapping
from inspect import Signature, cleandoc, signature
from textwrap import dedent
from typing import Any, ClassVar

import numpy as np
import pytensor

from pymc.exceptions import SamplingError
from pymc.initial_point import PointType
from pymc.logprob.transforms import Transform
from pymc.model import Model, modelcontext
from pymc.stats.convergence import SamplerWarning, WarningType
from pymc.step_methods.compound import BlockedStep, Competence, StepMethodState
from pymc.step_methods.state import RandomGeneratorState, dataclass_state
from pymc.util import RandomGenerator, get_random_generator
from pymc.vartypes import continuous_types
from pytensor.tensor.variable import TensorVariable
from rich.progress import TextColumn
from rich.table import Column

from pymc_sgmcmc import arguments, jax_backend
from pymc_sgmcmc.blocks import Blocks
from pymc_sgmcmc.engine import Engine, Settings
from pymc_sgmcmc.minibatch import BATCH_SCHEMES, check_minibatches
from pymc_sgmcmc.noise import Noise
from pymc_sgmcmc.transition import Extra, Transition
from pymc_sgmcmc.tuning.schedules import Schedule, as_schedule, constant, step_sizes

__all__ = ["SGMCMCState", "SGMCMCStep"]

# A chain whose every update is rejected for so many draws will not recover
_LARGEST_STUCK = 10

_STATISTICS: dict[str, tuple[Any, Any]] = {
    "step_size": (np.float64, []),
    "weight": (np.float64, []),
    "batch_logp": (np.float64, []),
    "grad_norm": (np.float64, []),
    "diverging": (bool, []),
    "rejected_updates": (np.int64, []),
    "warning": (SamplerWarning, None),  # the type that NUTS declares: PyMC wants the same
}

_OPTIONS = """\
    vars : variable or list of variables, optional
        The variables to sample; all continuous free variables by default.
    step_size : float or callable
        Step size h, in squared units of the sampled coordinates, or a schedule such as
        :class:`~pymc_sgmcmc.polynomial`.
    thin : int, default 20
        Updates for each recorded draw.
    batch : {"shuffled", "random"}, default "shuffled"
        How ``pm.Minibatch`` rows are drawn: contiguous blocks of once-permuted rows, or
        indices with replacement. Models without ``pm.Minibatch`` use the full gradient.
    transforms : {"lipschitz", "model", "mirror"} or dict, optional
        Coordinates of bounded variables: Lipschitz maps (softplus in place of exp),
        PyMC's own, mirror maps, or a dict of the variables' names to transforms.
    scale : dict, optional
        Whitening: for each variable's name its scale, a positive array with the shape of
        its unconstrained coordinates or a number; 1 for variables that are not named.
    temperature : float, default 1.0
        T; prior and likelihood are raised to the power 1/T.
    backend : {"auto", "jax", "numba"}, default "auto"
        "auto" takes JAX where it is installed and has every Op of the model.
    compile_kwargs : dict, optional
        Further arguments for :func:`pymc.compile`.
    model : pymc.Model, optional
        Taken from the context by default.
    rng, initial_point, blocked : optional
        As in every PyMC step method.
"""


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
    updates: int
    draw: int
    last_draw: int
    tuning_draws: int
    rejected: int
    stuck: int


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
    Statistics of each draw: ``step_size`` (of its last update), ``weight`` (the sum of its
    step sizes), ``batch_logp`` (log density estimated from the last batch), ``grad_norm``
    (Euclidean norm of the last estimated gradient), ``rejected_updates`` (updates that were
    not finite, for which the state was kept), ``diverging`` (whether there were any) and
    ``warning`` (which PyMC logs after sampling and keeps out of the result).
    """

    name = "sgmcmc"
    stats_dtypes_shapes: ClassVar[dict[str, tuple[Any, Any]]] = dict(_STATISTICS)
    own_statistics: ClassVar[tuple[str, ...]] = ()
    """Names of the statistics that :meth:`statistics` returns."""
    default_transforms: ClassVar[str] = "lipschitz"
    __signature__: ClassVar[Signature]
    _state_class = SGMCMCState

    # The chain's state, beside what SGMCMCState lists, as arrays of the backend
    _position: list[Any] | None
    values: list[np.ndarray]
    _extra: dict[str, list[Any]]
    # What is made anew in every process: compiled functions and what they read
    _engine: Engine | None
    _prepared_for: Transition | None
    _before: list[Any]
    _after: list[Any]
    _placed_steps: tuple[Any, float, float] | None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own: dict[str, tuple[Any, Any]] = {n: (np.float64, []) for n in cls.own_statistics}
        cls.stats_dtypes_shapes = {**_STATISTICS, **own}
        cls.__doc__ = _with_options(cls.__doc__)
        cls.__signature__ = _signature_of(cls.__init__)

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Refuse a model or a list without variables, of which PyMC names no cure."""
        variables = args[0] if args else kwargs.get("vars")
        arguments.refuse_nothing(modelcontext(kwargs.get("model")), variables)
        return super().__new__(cls, *args, **kwargs)

    def __init__(
        self,
        vars: Any = None,
        *,
        step_size: float | Schedule | None = None,
        thin: int = 20,
        batch: str = "shuffled",
        transforms: str | Mapping[str, Transform | None] | None = None,
        scale: Mapping[str, Any] | None = None,
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
        if step_size is None:
            raise ValueError(
                f"{type(self).__name__} needs a step_size: there is no automatic choice yet. Pass "
                "a positive number, for example step_size=1e-3, or a schedule."
            )
        self.schedule = as_schedule(step_size)
        step_sizes(self.schedule, np.arange(2))
        backend, compile_kwargs = arguments.checked_backend(backend, compile_kwargs)
        if transforms is None:
            transforms = self.default_transforms
        self.settings = Settings(
            thin=arguments.positive_int("thin", thin, usual=20),
            batch=arguments.one_of("batch", batch, BATCH_SCHEMES),
            transforms=arguments.checked_transforms(transforms, names),
            scale=arguments.checked_scale(scale, names),
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

    def initial_extra(
        self, position: list[np.ndarray], rng: np.random.Generator
    ) -> dict[str, list[np.ndarray]]:
        """Draw the state beyond the position at the start of a chain.

        Parameters
        ----------
        position : list of ndarray
            The start, one array for each variable.
        rng : numpy.random.Generator
            The chain's generator.

        Returns
        -------
        dict
            Name to one array for each variable, such as a momentum.
        """
        return {}

    def update(
        self,
        position: Blocks,
        extra: Extra,
        gradient: Callable[[Blocks], Blocks],
        step_size: TensorVariable,
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
            update uses the same batch.
        step_size : TensorVariable
            h, scalar.
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
        engine = self._ready(point)
        assert self._position is not None
        # In a worker process the point is shared memory, which the next draw overwrites
        others = [np.array(point[value.name]) for value in engine.posterior.others]
        fixed = [*self._before, *others, *self._after]
        rejected, weight = 0, 0.0
        updates = engine.transition.updates
        for _ in range(self.settings.thin // updates):
            h, total, last = self._step_sizes(engine)
            batches = engine.draw_batches(self.batch_rng, updates)
            noise = engine.transition.noise.draw(self.noise_rng, updates)
            self._position, self._extra, values, statistics = engine.run(
                self._position, self._extra, h, batches, noise, fixed
            )
            rejected += int(statistics["rejected_updates"])
            weight += total
        self.values = [np.array(value) for value in values]
        self.draw += 1
        self._count(engine, rejected, last)
        stats: dict[str, Any] = {
            **statistics,
            "step_size": last,
            "weight": weight,
            "diverging": rejected > 0,
            "rejected_updates": rejected,
            "warning": self._final_warning() if self.draw == self.last_draw else None,
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

    def __getstate__(self) -> dict[str, Any]:
        # Compiled functions and data are made anew where the step is sampled
        names = ("_engine", "_prepared_for", "_before", "_after", "_placed_steps")
        state = {**self.__dict__, **dict.fromkeys(names)}
        return {**state, "_position": self.position, "_extra": self.extra}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._pid = os.getpid()

    # ------------------------------------------------------------------ the chain's state

    @property
    def position(self) -> list[np.ndarray] | None:
        """ψ, one array for each variable; None before the first draw of a chain."""
        return None if self._position is None else [np.asarray(x) for x in self._position]

    @position.setter
    def position(self, position: list[np.ndarray] | None) -> None:
        self._position = position
        self._prepared_for = None

    @property
    def extra(self) -> dict[str, list[np.ndarray]]:
        """The algorithm's further state."""
        return {name: [np.asarray(x) for x in parts] for name, parts in self._extra.items()}

    @extra.setter
    def extra(self, extra: dict[str, list[np.ndarray]]) -> None:
        self._extra = extra

    def _new_chain(self, tune: int, draws: int) -> None:
        seeds = self.rng.integers(0, 2**63, size=9).tolist()
        # A fifth faster than NumPy's default at drawing normals, which are most of the cost
        self.noise_rng = np.random.Generator(np.random.SFC64(seeds[:4]))
        self.batch_rng = np.random.Generator(np.random.SFC64(seeds[4:8]))
        self.row_order = int(seeds[8])
        self.position = None
        self.extra = {}
        self.scales: list[np.ndarray] = []
        self.values = []
        self.updates = self.draw = self.rejected = self.stuck = 0
        self.tuning_draws = tune
        self.last_draw = tune + draws

    # ------------------------------------------------------------------ one draw

    def _ready(self, point: PointType) -> Engine:
        """Compile, start the chain or follow a point that was moved, as far as needed."""
        engine = self._engine
        if engine is None:
            engine = Engine(self.model, self.vars, self, self.settings, point)
            self._engine = engine
        if self._position is None:
            phi, self.scales = engine.express(point)
            phi = engine.jittered(phi, self.scales, point, self.rng)
            position = engine.whiten(phi)
            self.extra = self.initial_extra(position, self.noise_rng)
            self.position = position
            self.values = []
        elif self.values and any(
            not np.array_equal(point[value.name], was)
            for value, was in zip(self.vars, self.values, strict=True)
        ):
            phi, self.scales = engine.express(point)
            self.position = engine.whiten(phi)
        if self._prepared_for is not engine.transition:
            place = engine.transition.place
            self._position = place(self.position or [])
            self._extra = {name: place(parts) for name, parts in self._extra.items()}
            self._placed_steps = None
            self._before, self._after = engine.prepare(self.scales, self.row_order)
            self._prepared_for = engine.transition
        return engine

    def _step_sizes(self, engine: Engine) -> tuple[Any, float, float]:
        """Step sizes of the next call, placed, with their sum and the last of them."""
        updates = engine.transition.updates
        start = self.updates
        self.updates += updates
        if isinstance(self.schedule, constant) and self._placed_steps is not None:
            return self._placed_steps
        h = step_sizes(self.schedule, np.arange(start, self.updates))
        h = h.astype(pytensor.config.floatX)
        self._placed_steps = engine.transition.place([h])[0], float(h.sum()), float(h[-1])
        return self._placed_steps

    def _count(self, engine: Engine, rejected: int, h: float) -> None:
        if self.draw > self.tuning_draws:
            self.rejected += rejected
        self.stuck = self.stuck + 1 if rejected == self.settings.thin else 0
        if self.stuck == _LARGEST_STUCK:
            largest = max(
                zip(engine.posterior.coordinates, self.position or [], strict=True),
                key=lambda pair: float(np.max(np.abs(pair[1]), initial=0.0)),
            )[0]
            raise SamplingError(
                f"The chain is stuck at draw {self.draw}: all updates of the last "
                f"{_LARGEST_STUCK} draws gave non-finite values, with the variable "
                f"'{largest.name}' furthest out, at step size {h:g}. Pass a smaller step_size, or "
                "tighter priors."
            )

    def _final_warning(self) -> SamplerWarning | None:
        if not self.rejected:
            return None
        share = self.rejected / max((self.draw - self.tuning_draws) * self.settings.thin, 1)
        text = (
            f"{self.rejected} updates ({share:.2%}) were not finite and were rejected. The draws "
            "are biased near where that happened: pass a smaller step_size."
        )
        return SamplerWarning(WarningType.DIVERGENCES, text, "warn")


def _with_options(doc: str | None) -> str | None:
    """Write the common options where a docstring says <options>."""
    # Python 3.13 strips the indentation of docstrings, 3.12 does not
    return doc and cleandoc(doc).replace("<options>", dedent(_OPTIONS).strip())


def _signature_of(init: Callable[..., None]) -> Signature:
    """Return what help() shows: PyMC's __new__ would hide the arguments."""
    of_init = signature(init)
    return of_init.replace(parameters=list(of_init.parameters.values())[1:])


SGMCMCStep.__doc__ = _with_options(SGMCMCStep.__doc__)
SGMCMCStep.__signature__ = _signature_of(SGMCMCStep.__init__)

"""PyMC's side of a sampler: arguments, chains, seeds, statistics, errors."""

from __future__ import annotations

import logging
import os

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from inspect import Signature
from typing import Any, ClassVar

import numpy as np

from pymc.exceptions import SamplingError
from pymc.initial_point import PointType
from pymc.logprob.transforms import Transform
from pymc.model import Model, modelcontext
from pymc.stats.convergence import SamplerWarning
from pymc.step_methods.compound import BlockedStep, Competence, StepMethodState
from pymc.step_methods.state import dataclass_state
from pymc.util import RandomGenerator
from pymc.vartypes import continuous_types
from pytensor.tensor.variable import TensorVariable
from rich.progress import TextColumn
from rich.table import Column

from pymc_sgmcmc.backends import jax_backend
from pymc_sgmcmc.backends.workarounds import (
    before_log_likelihood,
    initvals_checked,
    left_out_of_traces,
)
from pymc_sgmcmc.chain.memory import Place
from pymc_sgmcmc.chain.monitor import final_warning, watched
from pymc_sgmcmc.chain.orphans import end_with_parent
from pymc_sgmcmc.chain.runner import Draw, Runner
from pymc_sgmcmc.chain.state import ChainState
from pymc_sgmcmc.checks import one_of, positive, positive_int_or_auto
from pymc_sgmcmc.kernel.blocks import Blocks
from pymc_sgmcmc.kernel.engine import Engine
from pymc_sgmcmc.kernel.estimators import SVRG, ControlVariates, Plain
from pymc_sgmcmc.kernel.noise import Noise
from pymc_sgmcmc.kernel.options import Options
from pymc_sgmcmc.kernel.policy import Policy
from pymc_sgmcmc.kernel.row_memory import SHARED_ORDER, RowMemory, is_large
from pymc_sgmcmc.kernel.sampler import Extra, Gradient
from pymc_sgmcmc.model.batch_schemes import BATCH_SCHEMES
from pymc_sgmcmc.model.choice_of_batches import chosen_batches
from pymc_sgmcmc.model.data_checks import check_coords, check_indices, check_observed_shapes
from pymc_sgmcmc.model.independent_rows import check_independent_rows
from pymc_sgmcmc.model.minibatch_checks import check_minibatches
from pymc_sgmcmc.model.properties import refuse_uninformed
from pymc_sgmcmc.model.row_view import in_batches
from pymc_sgmcmc.model.tensor_model import in_tensors
from pymc_sgmcmc.schedules import Schedule, as_schedule, constant, records, step_sizes, thin_of
from pymc_sgmcmc.step import arguments
from pymc_sgmcmc.step.compilation import tell_compilation
from pymc_sgmcmc.step.convergence import prepare_checks
from pymc_sgmcmc.step.log_likelihood import tell_log_likelihood
from pymc_sgmcmc.step.memory import left_out, tell_memory
from pymc_sgmcmc.step.options import signature_of, with_options
from pymc_sgmcmc.step.statistics import STATISTICS, nothing_measured, of_variables
from pymc_sgmcmc.tuning.again import Companion
from pymc_sgmcmc.tuning.approach import common_start, stands_still
from pymc_sgmcmc.tuning.by_hand import start_by_hand
from pymc_sgmcmc.tuning.report import LOGGED
from pymc_sgmcmc.tuning.run import Tuning
from pymc_sgmcmc.tuning.wander import NO_GAUSSIAN, heed

__all__ = ["SGMCMCState", "SGMCMCStep"]

_log = logging.getLogger("pymc.sgmcmc")

# A chain whose every update is rejected for so many draws will not recover
_LARGEST_STUCK = 10


@dataclass_state
class SGMCMCState(StepMethodState):
    """All that belongs to one chain."""

    chain: ChainState


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
        If the model has what cannot be sampled, such as unobserved variables on a minibatch.
    pymc.exceptions.SamplingError
        While sampling: if the density is not finite at the start, or if updates stay
        non-finite.

    Notes
    -----
    Statistics of each draw: ``step_size`` (of its last update), ``thin`` (its updates),
    ``batches`` (averaged for one gradient), ``batch_size`` (rows of one, 0 where updates take
    all), ``weight`` (the sum of its step sizes),
    ``batch_logp`` (log density estimated from a fresh batch), ``grad_norm`` (Euclidean norm of
    the gradient estimated from it), ``config_temperature`` (mean over coordinates of ψ_i ĝ_i,
    on average 1 under the exact law), ``noise_ratio`` (relative widening of the variances by
    gradient noise, from two fresh batches), ``rejected_updates`` (updates that were not
    finite, for which the state was kept), ``diverging`` (whether there were any),
    ``tamed_updates`` (updates in which a bound on the gradient or on a move acted) and
    ``warning`` (which PyMC logs after sampling and keeps out of the result).

    Statistics of each variable, as of one that is called x: ``config_temperature[x]`` (the mean
    over the directions along which it varies, each by its share of the variance; after the
    burn-in), ``noise[x]`` (the largest variance of its gradients that tuning found, over what it
    allows; with batches) and ``centring[x]`` (the mean of :attr:`centring_weights`, for a variable
    whose law depends on another one).
    """

    name = "sgmcmc"
    stats_dtypes_shapes: dict[str, tuple[Any, Any]] = STATISTICS
    own_statistics: ClassVar[tuple[str, ...]] = ()
    """Names of the statistics that :meth:`statistics` returns."""
    default_tune_steps: ClassVar[int] = 100
    __signature__: ClassVar[Signature]
    _state_class = SGMCMCState

    left_out: frozenset[str]
    """Names of deterministics of all rows, which draws have only where ``var_names`` asks."""

    # What is compiled, and what moves the chain in this process
    _engine: Engine | None
    _runner: Runner | None
    # Names of the statistics of single variables
    _of_variables: list[str]
    # Rows of the largest batch, 0 where updates take all rows
    _batch_size: int
    # Whether rows without density were named
    _told_impossible: bool
    # Of rows in memory that are many: the order that all chains share, and where they find them
    _row_order: int | None
    _row_memory: RowMemory | None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own: dict[str, tuple[Any, Any]] = {n: (np.float64, []) for n in cls.own_statistics}
        cls.stats_dtypes_shapes = {**STATISTICS, **own}
        cls.__doc__ = with_options(cls.__doc__)
        cls.__signature__ = signature_of(cls)

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Refuse a model or a list without variables, of which PyMC names no cure."""
        variables = args[0] if args else kwargs.get("vars")
        arguments.refuse_nothing(kwargs.get("model"), variables)
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
        initvals_checked(self.model)
        left_out_of_traces()
        before_log_likelihood(tell_log_likelihood)
        self.vars = arguments.sampled_values(self.model, vars)
        self.names = [self.model.values_to_rvs[value].name for value in self.vars]
        # What is read, and compiled: the same where the model is not of pymc.dims
        self._read_model = model = in_tensors(self.model)
        self._values = [model.rvs_to_values[model[name]] for name in self.names]
        self.kinds = arguments.kinds_of_support(model, self._values)
        names = self.names
        policy = self.policy()
        automatic = isinstance(step_size, str) and step_size == "auto"
        by_hand = arguments.why_by_hand(type(self).__name__, policy, model)
        if by_hand:
            thin, scale, gradient, batches = arguments.by_hand(
                by_hand, automatic, thin, scale, gradient, batches
            )
        if not policy.whitened:
            arguments.refuse_whitening(type(self).__name__, scale)
            scale = None
        schedule = None if automatic else as_schedule(step_size)
        if schedule is not None:
            step_sizes(schedule, np.arange(2))
        wished_thin = positive_int_or_auto("thin", thin, usual=20)
        thin_of(schedule, wished_thin)
        backend, compile_kwargs = arguments.checked_backend(backend, compile_kwargs)
        self.options = Options(
            step_size=schedule,
            thin=wished_thin,
            scale=arguments.checked_scale(scale, names),
            gradient=arguments.checked_gradient(gradient, (Plain, ControlVariates, SVRG)),
            batches=positive_int_or_auto("batches", batches, usual=1) or "auto",
            batch=one_of("batch", batch, BATCH_SCHEMES),
            **arguments.checked_transforms(transforms, model, names, policy.coordinates),
            centring=False,
            temperature=positive("temperature", temperature, usual=1.0),
            backend=backend,
            compile_kwargs=compile_kwargs,
        )
        # A scale by hand is one of the coordinates as they are written
        if centring is not None:
            one_of("centring", centring, ("auto",))
        if centring is not None and isinstance(self.options.scale, str):
            self.options = replace(self.options, centring=not self.options.is_complete())
        self.blocked = blocked
        # Without tuning nothing chooses how many batches are averaged
        unasked = isinstance(batch_size, str) and batch_size == "auto" and batch_dim is None
        self._asked = None if unasked and self.options.is_complete() else batch_size, batch_dim
        self._look_at_batches()
        self._of_variables = of_variables(
            model,
            names,
            temperature=policy.second_moments,
            noise=self._batch_size > 0 and not self.options.is_complete(),
            centring=self.options.centring,
        )
        own: dict[str, tuple[Any, Any]] = dict.fromkeys(self._of_variables, (np.float64, []))
        self.stats_dtypes_shapes = type(self).stats_dtypes_shapes | own
        self.stats_dtypes = [{name: x for name, (x, _) in self.stats_dtypes_shapes.items()}]
        tell_memory(model, self._values)
        prepare_checks(model, self._values)
        tell_compilation(model, self.left_out)

        self.rng = arguments.checked_rng(rng)
        self.tune = True
        self._pid = os.getpid()
        self._engine = self._runner = None
        self._new_chain(0, 0)

    # ------------------------------------------------------------------ the algorithm

    def policy(self) -> Policy:
        """Return how the method is run and tuned; by default as a first-order method."""
        return Policy(step_size=0.04)

    def require_kinds(self, *kinds: str) -> None:
        """Refuse variables whose support is not of one of these kinds.

        Parameters
        ----------
        *kinds : str
            As in ``gradient.variables.kinds``.

        Raises
        ------
        NotImplementedError
            If there is such a variable.
        """
        arguments.require_kinds(type(self).__name__, self.names, self.kinds, kinds)

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
            update uses the same rows. ``gradient.potential`` estimates U from them,
            ``gradient.independent()`` returns an estimate from other rows,
            ``gradient.variance`` is what is known of its noise, and ``gradient.variables``
            what the blocks stand for.
        step_size : TensorVariable or Blocks
            h, a scalar; with ``policy().per_coordinate`` possibly one for each coordinate.
        noise : Noise
            Source of fresh noise.

        Returns
        -------
        position, extra
            The next state.
        """
        raise NotImplementedError(f"{type(self).__name__} must define update().")

    def statistics(self, extra: Extra) -> Mapping[str, TensorVariable]:
        """Scalars to record with each draw, named in ``own_statistics``.

        Parameters
        ----------
        extra : dict of Blocks
            The further state at the recorded position.

        Returns
        -------
        dict
            Name to symbolic scalar.
        """
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
            The part of that variance that :meth:`update` makes up for; 0 unless the policy
            compensates.

        Returns
        -------
        Blocks
            The relative excess, for each coordinate.
        """
        return step_size * (variance - known) / 2

    # ------------------------------------------------------------------ PyMC's hooks

    def setup_chain(self, rng: RandomGenerator, tune: int, draws: int) -> None:
        """Start a chain of ``tune + draws`` draws with its own generator."""
        super().setup_chain(rng, tune, draws)
        end_with_parent()
        if self.options.backend != "numba":
            jax_backend.refuse_inherited(self._pid)
        if self._engine is not None and self._engine.is_stale():
            self._look_at_batches()
            self._engine = None
        self._new_chain(tune, draws)

    def step(self, point: PointType) -> tuple[PointType, list[dict[str, Any]]]:
        """Take ``thin`` updates from ``point``."""
        engine = self._engine_at(point)
        if self._chain.psi is None and not self.options.is_complete():
            if stands_still(self._read_model, engine.posterior.others, point, self._chain):
                self._chain.draw += 1
                return dict(point), [nothing_measured(self.stats_dtypes_shapes)]
            point = common_start(engine, point, self._chain, self.model)
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
        while not records(schedule, state.updates, runner.settings.thin):
            runner.advance(h, runner.settings.thin, others)
        if companion is not None:
            runner, h, draw = companion.draw(runner, h, others)
        else:
            draw = runner.advance(h, runner.settings.thin, others)
        self._runner = runner
        state.values = [np.array(value) for value in draw.values]
        state.draw += 1
        of_variables = runner.by_variable.constant | self._count(runner, draw)
        if draw.statistics["batch_logp"] == -np.inf and not self._told_impossible:
            self._told_impossible = True
            place = [*runner.phi(), *state.scales, *others]
            if told := engine.impossible_rows(engine.posterior.entries, place):
                _log.warning("The draws take no account of some rows: %s", told)
        stats: dict[str, Any] = {
            **draw.statistics,
            "thin": runner.settings.thin,
            "batches": runner.settings.batches,
            "batch_size": self._batch_size,
            "weight": draw.weight,
            "diverging": draw.rejected > 0,
            "rejected_updates": draw.rejected,
            "tamed_updates": draw.tamed,
            "warning": self._final_warning(runner) if state.draw == state.last_draw else None,
        }
        stats |= {name: of_variables.get(name, np.nan) for name in self._of_variables}
        names = [value.name for value in self.vars]
        return {**point, **dict(zip(names, state.values, strict=True))}, [stats]

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
        return {**self.__dict__, "_engine": None, "_runner": None, "_row_memory": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._pid = os.getpid()

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
        element, and 0 or 1 for vectors and walks. The dict is empty before a chain is tuned, and
        where other processes sampled the chains.
        """
        scales = self._chain.scales
        return self._engine.weights(scales) if self._engine is not None and scales else {}

    def _new_chain(self, tune: int, draws: int) -> None:
        self.chain = ChainState.new(self.rng, tune, draws, self._row_order)
        self._told_impossible = False
        # Its steps look for a common start anew
        self.model.value_vars[0].tag.begin_together = False

    def _look_at_batches(self) -> None:
        """Check the minibatches, and reserve memory for rows that forked processes share."""
        model = in_tensors(self.model)
        check_coords(model)
        check_observed_shapes(model)
        check_indices(model)
        chosen = chosen_batches(model, *self._asked)
        self._read_model = chosen.model
        self.options = replace(self.options, batch_dim=chosen.dim, batch_size=chosen.size)
        options = self.options
        batched = in_batches(self._read_model, options.batch_dim, options.batch_size)
        minibatches = check_minibatches(batched)
        if options.batch_dim is None:
            check_independent_rows(self._read_model)
        arguments.check_batches(options.batches, minibatches, options.batch)
        self._batch_size = max((x.batch_size for x in minibatches), default=0)
        self.left_out = left_out(self._read_model, options.batch_dim)
        self._row_order = self._row_memory = None
        if is_large(minibatches):
            self._row_order = SHARED_ORDER
            with suppress(OSError):  # then each process has a copy
                self._row_memory = RowMemory(minibatches)

    def check_kept(self, names: Collection[str]) -> None:
        """Begin a run, and refuse draws of these variables that PyMC could not put together."""
        LOGGED.clear()
        check_coords(in_tensors(self.model), names)

    # ------------------------------------------------------------------ one draw

    def _engine_at(self, point: PointType) -> Engine:
        if self._engine is None:
            self._engine = Engine(
                self._read_model, self._values, self, self.options, point, self._row_memory
            )
        return self._engine

    def _runner_at(self, point: PointType, others: list[np.ndarray]) -> Runner:
        """Start the chain, take it up where it was stored, or follow a point that was moved."""
        engine, state = self._engine_at(point), self._chain
        if state.psi is None:
            self._runner = self._started(engine, point, others)
            state.backend = engine.backend
        elif self._runner is None:
            engine.use(state.backend or engine.backend)
            self._runner = Runner(engine, state)
        elif state.values and any(
            # PyMC hands on the arrays of the last draw where nothing else moves them
            (now := point[value.name]) is not was and not np.array_equal(now, was)
            for value, was in zip(self._values, state.values, strict=True)
        ):
            whitening = self._runner.settings.whitening()
            psi = whitening.to_psi(engine.expressed(point, state.scales), whitening.arrays)
            self._runner.restart(psi, state.extra)
        return self._runner

    def _started(self, engine: Engine, point: PointType, others: list[np.ndarray]) -> Runner:
        """Start a chain: tuned where the user left anything to tuning."""
        refuse_uninformed(self._read_model)
        place, state = Place(others, *engine.express(point)), self._chain
        if self.options.is_complete():
            return start_by_hand(engine, self.options, state, place, point)
        later = others and Companion.times(state.tuning_draws)
        return Tuning(engine, self.options, state, [place]).run(thorough=not later)

    def _companion(self, others: list[np.ndarray]) -> Companion | None:
        """Return what keeps the chain tuned to other step methods, while it is tuned at all."""
        tuning = self._chain.draw < self._chain.tuning_draws
        if not others or not tuning or self.options.is_complete():
            return None
        assert self._engine is not None
        return Companion(self._engine, self.options)

    def _count(self, runner: Runner, draw: Draw) -> dict[str, float]:
        """Count a draw, and return the temperature of each variable after the burn-in."""
        state, temperatures = self._chain, {}
        known = runner.settings.root is not None or runner.settings.centre
        if state.draw == state.tuning_draws and not known:
            assert state.psi is not None
            runner.set_origin([np.asarray(x) for x in state.psi])
        if state.draw <= state.tuning_draws:
            if self.options.step_size is None and NO_GAUSSIAN in runner.settings.warnings:
                heed(runner, draw.tamed / runner.settings.thin)
        else:
            state.rejected += draw.rejected
            state.tamed += draw.tamed
            on_line = runner.engine.posterior.on_line
            assert state.psi is not None
            away = watched(on_line(state.psi)) - watched(on_line(state.origin))
            gradient = watched(on_line(draw.gradient))
            state.monitor.add(away, gradient, draw.statistics["noise_ratio"])
            temperatures = runner.by_variable.temperatures(away, gradient)
        state.stuck = state.stuck + 1 if draw.rejected == runner.settings.thin else 0
        if state.stuck == _LARGEST_STUCK:
            h = draw.statistics["step_size"]
            raise SamplingError(
                f"The chain is stuck at draw {state.draw}: all updates of the last "
                f"{_LARGEST_STUCK} draws gave non-finite values, with the variable "
                f"'{self._furthest(runner)}' furthest out, at step size {h:g}. Pass a smaller "
                "step_size, or tighter priors."
            )
        return temperatures

    def _furthest(self, runner: Runner) -> str:
        sizes = [float(np.max(np.abs(x), initial=0.0)) for x in runner.phi()]
        name: str = runner.engine.posterior.coordinates[int(np.argmax(sizes))].name
        return name

    def _final_warning(self, runner: Runner) -> SamplerWarning | None:
        state, policy = self._chain, self.policy()
        updates = max(state.last_draw - state.tuning_draws, 1) * runner.settings.thin
        return final_warning(
            runner.settings.warnings,
            state.monitor if policy.second_moments else None,
            state.rejected,
            state.tamed if policy.second_moments else 0,
            updates,
            absorbed=policy.absorbs_noise,
        )


SGMCMCStep.__doc__ = with_options(SGMCMCStep.__doc__)
SGMCMCStep.__signature__ = signature_of(SGMCMCStep)

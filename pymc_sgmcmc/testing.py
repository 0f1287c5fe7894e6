"""Targets with known laws, and the matrix of tests that any sampler must pass.

A sampler is run on many independent replicates of a target at once, as the rows of one
variable, so that the Monte-Carlo error of a moment is computed between replicates and needs
no estimate of autocorrelation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pymc as pm

from pymc_sgmcmc.backends.compiling import INTERPRETER
from pymc_sgmcmc.backends.workarounds import interpreted
from pymc_sgmcmc.checks import (
    a_function,
    a_generator,
    not_negative,
    of_class,
    one_of,
    positive,
    positive_int,
    with_checks,
)
from pymc_sgmcmc.model.coordinates import coordinates_at
from pymc_sgmcmc.model.posterior import Posterior
from pymc_sgmcmc.step.arguments import TRANSFORM_CHOICES
from pymc_sgmcmc.step.step import SGMCMCStep

__all__ = [
    "UNTUNED",
    "Moment",
    "Target",
    "check",
    "check_sampler",
    "correlated_gaussian",
    "gaussian",
    "matrix",
    "normal_normal",
    "one_dimensional",
    "run_chain",
]

UNTUNED: dict[str, Any] = {"thin": 20, "scale": None, "gradient": "plain", "batches": 1}
"""With a step size beside them, arguments that leave nothing to tuning."""

MakeStep = Callable[..., SGMCMCStep]
Variance = Callable[[float, float], float]
"""Stationary variance on N(0, 1) of a sampler, from the step size h and the variance σ² of
independent gradient noise."""


@dataclass(frozen=True)
class Moment:
    """The expectation of a function of the draws, as the sampler should have it.

    Attributes
    ----------
    name : str
        What is compared.
    of : callable
        Maps draws of shape (..., replicate, dimension) to values of the same leading shape,
        (..., replicate).
    expected : float
        Its expectation, the method's known bias included.
    bias : float
        What is not known of that bias, at most; allowed on top of the Monte-Carlo error.
    """

    name: str
    of: Callable[[np.ndarray], np.ndarray]
    expected: float
    bias: float = 0.0


@dataclass(frozen=True)
class Target:
    """A model of independent replicates of one law, and its moments.

    Attributes
    ----------
    name : str
        Name for messages.
    model : pymc.Model
        A model with one free variable ``x`` of shape (replicate, dimension) or (replicate,).
    moments : list of Moment
        What is compared.
    relaxation : float
        About how long the slowest mode takes, in units of time: updates × step size.
    options : dict
        Arguments that the step needs on this target.
    """

    name: str
    model: pm.Model
    moments: list[Moment]
    relaxation: float = 1.0
    options: dict[str, Any] = field(default_factory=dict)


_count, _positive = partial(positive_int, usual=40), partial(positive, usual=0.1)
_checked = with_checks(
    **dict.fromkeys(("dimension", "replicates", "rows", "batch_size", "draws"), _count),
    **dict.fromkeys(("step_size", "relaxation", "patience", "errors"), _positive),
    **dict.fromkeys(("variance", "build", "make_step"), a_function),
    seed=a_generator,
    unknown=partial(not_negative, usual=0.0),
    model=of_class(pm.Model),
    step=of_class(SGMCMCStep),
    target=of_class(Target),
    transforms=lambda name, x: isinstance(x, Mapping) or one_of(name, x, TRANSFORM_CHOICES),
)


@_checked
def run_chain(
    model: pm.Model, step: SGMCMCStep, *, burn: int, draws: int, seed: int
) -> dict[str, np.ndarray]:
    """Run one chain without :func:`pymc.sample`.

    Parameters
    ----------
    model : pymc.Model
        The model.
    step : SGMCMCStep
        A step method for all its variables.
    burn, draws : int
        Draws that are left out at the start, and draws that are kept.
    seed : int
        Seed of the chain.

    Returns
    -------
    dict
        Draws of every free variable in its own space, shape ``(draws, *shape)``.
    """
    with interpreted():
        point = model.initial_point()
    to_own = pm.compile(
        model.value_vars,
        model.replace_rvs_by_values(model.free_RVs),
        mode=INTERPRETER,
        on_unused_input="ignore",
    )
    step.setup_chain(np.random.default_rng(seed), burn, draws)
    kept: list[list[np.ndarray]] = []
    for i in range(burn + draws):
        point, [statistics] = step.step(point)
        if statistics["rejected_updates"]:
            raise AssertionError(f"{statistics['rejected_updates']} updates were not finite")
        if i >= burn:
            kept.append(to_own(*[point[value.name] for value in model.value_vars]))
    return {rv.name: np.array([row[i] for row in kept]) for i, rv in enumerate(model.free_RVs)}


@_checked
def check(
    target: Target,
    make_step: MakeStep,
    *,
    step_size: float,
    draws: int = 40,
    seed: int = 0,
    errors: float = 4.0,
    patience: float = 1.0,
    **options: Any,
) -> dict[str, float]:
    """Run a sampler on a target and compare every moment.

    Parameters
    ----------
    target : Target
        The target.
    make_step : callable
        Called as ``make_step(step_size=..., thin=..., **options)`` in the model's context; a
        step method class, for example.
    step_size : float
        h.
    draws : int
        Draws, each half a relaxation time after the last.
    seed : int
        Seed of the chain.
    errors : float
        Allowed Monte-Carlo standard errors.
    patience : float
        Factor on the target's relaxation time, for samplers that are slower than Langevin
        dynamics.
    **options
        Further arguments for the step.

    Returns
    -------
    dict
        For each moment its deviation in standard errors.

    Raises
    ------
    AssertionError
        Naming the target, the moment, what was found and what was expected.
    """
    thin = max(1, round(0.5 * patience * target.relaxation / step_size))
    with target.model:
        step = make_step(
            step_size=step_size, **{**UNTUNED, "thin": thin, **target.options, **options}
        )
    x = run_chain(target.model, step, burn=12, draws=draws, seed=seed)["x"]
    if x.ndim == 2:
        x = x[..., None]
    found, wrong = {}, []
    for moment in target.moments:
        # One independent number for each replicate
        means = moment.of(x).mean(axis=0)
        error = means.std(ddof=1) / np.sqrt(means.size)
        deviation = means.mean() - moment.expected
        found[moment.name] = deviation / error
        if abs(deviation) > errors * error + moment.bias:
            wrong.append(
                f"{moment.name}: {means.mean():.5f} ± {error:.5f}, expected "
                f"{moment.expected:.5f} (known bias included, up to {moment.bias:.1g})"
            )
    if wrong:
        raise AssertionError(f"On {target.name} at step size {step_size}: " + "; ".join(wrong))
    return found


@_checked
def gaussian(
    dimension: int,
    variance: Variance,
    step_size: float,
    *,
    unknown: float = 0.0,
    replicates: int | None = None,
) -> Target:
    """Return N(0, I) with exact gradients.

    Parameters
    ----------
    dimension : int
        Of one replicate.
    variance, unknown
        As of :func:`check_sampler`.
    step_size : float
        h.
    replicates : int, optional
        Independent replicates; by default as many as a precise test takes.
    """
    # All coordinates of a replicate count, so that fewer replicates are needed
    replicates = replicates or max(200, 1000 // dimension)
    with pm.Model() as model:
        pm.Normal("x", 0, 1, shape=(replicates, dimension))
    moments = _gaussian_moments(variance(step_size, 0), unknown * step_size**2)
    return Target(f"N(0, I), d = {dimension}", model, moments)


@_checked
def correlated_gaussian(
    dimension: int,
    variance: Variance,
    step_size: float,
    *,
    unknown: float = 0.0,
    replicates: int | None = None,
) -> Target:
    """Return a rotated Gaussian with precisions from 1/4 to 1, with exact gradients.

    Parameters
    ----------
    dimension, variance, step_size, unknown, replicates
        As of :func:`gaussian`.
    """
    rng = np.random.default_rng(dimension)
    replicates = replicates or (500 if dimension < 100 else 200)
    rotation = np.linalg.qr(rng.normal(size=(dimension, dimension)))[0]
    precisions = np.linspace(0.25, 1.0, dimension)
    matrix = (rotation * precisions) @ rotation.T
    with pm.Model() as model:
        # A flat variable with its density as a potential: rows are cheap this way
        x = pm.Flat("x", shape=(replicates, dimension), initval=np.zeros((replicates, dimension)))
        pm.Potential("density", -0.5 * ((x @ matrix) * x).sum())
    moments = []
    for i in sorted({0, dimension // 2, dimension - 1}):
        along = _projection(rotation[:, i])
        # A direction of precision λ sees the step size h λ in units of its own sd
        exact = variance(step_size * precisions[i], 0) / precisions[i]
        left = unknown * step_size**2  # in units of the sd: h² λ / λ
        moments += _gaussian_moments(exact, left, along, f" along precision {precisions[i]:.2f}")
    name = f"a rotated Gaussian, d = {dimension}"
    return Target(name, model, moments, relaxation=1 / precisions[0])


@_checked
def normal_normal(
    dimension: int,
    variance: Variance,
    step_size: float,
    *,
    unknown: float = 0.0,
    rows: int = 200,
    batch_size: int = 20,
) -> Target:
    """Return a normal mean with normal data in minibatches; columns are the replicates.

    In units of posterior sds the gradient noise has a variance of about rows / batch_size:
    choose the step size accordingly.

    Parameters
    ----------
    dimension, variance, step_size, unknown
        As of :func:`gaussian`.
    rows, batch_size : int
        Rows of the data and of a batch.
    """
    replicates = max(40, 400 // dimension)
    columns = replicates * dimension
    # Scaled so that every posterior is N(mean, 1)
    sd = np.sqrt(rows - 1.0)
    data = np.random.default_rng(1).normal(0.0, sd, size=(rows, columns))
    prior_sd = np.sqrt(sd**2 / (sd**2 - rows)) if sd**2 > rows else 1e6
    with pm.Model() as model:
        x = pm.Normal("x", 0, prior_sd, shape=(replicates, dimension))
        batch = pm.Minibatch(data, batch_size=batch_size)
        pm.Normal("y", x.ravel(), sd, observed=batch, total_size=rows)
    precision = 1 / prior_sd**2 + rows / sd**2
    means = (data.sum(axis=0) / sd**2 / precision).reshape(replicates, dimension)
    noise = rows**2 / batch_size * data.var(axis=0).mean() / sd**4
    exact = variance(step_size * precision, noise / precision) / precision
    return Target(
        f"a normal mean with minibatches, d = {dimension}",
        model,
        _gaussian_moments(exact, unknown * step_size**2, lambda draws: draws - means),
        options={"batch": "random"},
    )


@_checked
def one_dimensional(
    name: str,
    build: Callable[[int], Any],
    step_size: float,
    *,
    euler: bool = False,
    transforms: Any = "lipschitz",
    relaxation: float = 1.0,
    replicates: int = 1000,
) -> Target:
    r"""Return a target of one bounded dimension, compared by its distribution function.

    Parameters
    ----------
    name : str
        For messages.
    build : callable
        Adds the variable ``x`` with ``build(size)`` elements to the model in context.
    step_size : float
        h.
    euler : bool
        Whether the sampler has the first-order bias of the Euler scheme, whose stationary
        density is :math:`\rho (1 + h (U'^2/4 - U''/2) + \text{const})` in the sampled
        coordinate, to first order in h.
    transforms
        As the step's.
    relaxation : float
        As the target's.
    replicates : int
        How many.
    """
    with pm.Model() as model:
        build(replicates)
    x, cdf, shift = _distribution(build, transforms)
    moments = []
    for p in (0.1, 0.25, 0.5, 0.75, 0.9):
        quantile = float(np.interp(p, cdf, x))
        bias = step_size * float(np.interp(p, cdf, shift)) if euler else 0.0
        # The next order, and for second-order methods the first that is left
        unknown = step_size**2 / 4
        moments.append(Moment(f"P(x < {quantile:.3g})", _below(quantile), p + bias, unknown))
    return Target(name, model, moments, relaxation, {"transforms": transforms})


def _distribution(
    build: Callable[[int], Any], transforms: Any, size: int = 20001
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Grid of θ, its distribution function, and the Euler scheme's shift of it over h."""
    with pm.Model() as model:
        build(size)
    with interpreted():
        point = model.initial_point()
    choice, named = (transforms, {}) if isinstance(transforms, str) else ("lipschitz", transforms)
    coordinates, start, scales = coordinates_at(model, model.value_vars, choice, point, named=named)
    posterior = Posterior(model, coordinates)
    inputs = [*posterior.phi, *posterior.scales]
    values_to_theta = model.replace_rvs_by_values(model.free_RVs)
    phi = np.linspace(-60.0, 60.0, size).astype(start[0].dtype)
    slope, value = pm.compile(inputs, [*posterior.gradient, *posterior.values], mode=INTERPRETER)(
        phi, *scales
    )
    theta = pm.compile(model.value_vars, values_to_theta, mode=INTERPRETER)(value)[0]
    width = phi[1] - phi[0]
    potential = np.concatenate([[0.0], np.cumsum((slope[1:] + slope[:-1]) / 2)]) * width
    density = np.exp(potential.min() - potential)
    density /= density.sum()
    factor = slope**2 / 4 - np.gradient(slope, phi) / 2
    factor = factor - np.sum(density * factor)
    middle = np.cumsum(density) - density / 2
    return theta, middle, np.cumsum(density * factor)


@_checked
def check_sampler(
    make_step: MakeStep,
    *,
    variance: Variance,
    unknown: float = 0.0,
    euler: bool = False,
    backends: Iterable[str] = ("jax",),
    dimensions: Sequence[int] = (1, 10, 100),
    transforms: str = "lipschitz",
    step_size: float = 0.1,
    patience: float = 1.0,
    seed: int = 0,
) -> dict[str, dict[str, float]]:
    """Put a sampler through the matrix: Gaussians, gradient noise, bounded variables.

    Parameters
    ----------
    make_step : callable
        Makes the step method in a model's context; its class, for example.
    variance : callable
        ``variance(h, noise)``: the sampler's stationary variance on N(0, 1) at step size h
        with independent gradient noise of that variance, as far as it is known.
    unknown : float
        What is not known of that variance is at most ``unknown * h**2``.
    euler : bool
        Whether the method is first order, with the bias of the Euler scheme.
    backends : iterable of {"jax", "numba"}
        The backends.
    dimensions : sequence of int
        Dimensions of the Gaussians.
    transforms : str
        Coordinates of the bounded variables.
    step_size : float
        For unbounded targets with exact gradients; bounded ones use half of it, and with
        gradient noise a fifth is used.
    patience : float
        As in :func:`check`.
    seed : int
        Seed.

    Returns
    -------
    dict
        For each target its moments' deviations, in Monte-Carlo standard errors.

    Raises
    ------
    AssertionError
        If a moment is more than four Monte-Carlo standard errors, and what is known of the
        bias, off.

    Examples
    --------
    >>> import pymc_sgmcmc as sg
    >>> found = check_sampler(
    ...     sg.SGLD,
    ...     variance=lambda h, noise: (2 + h * noise) / (2 - h),
    ...     euler=True,
    ...     dimensions=(2,),
    ... )  # doctest: +SKIP
    """
    found = {}
    for backend in backends:
        for target, h in matrix(
            variance, unknown, euler=euler, dimensions=dimensions, transforms=transforms,
            step_size=step_size,
        ):  # fmt: skip
            found[f"{target.name}, {backend}"] = check(
                target, make_step, step_size=h, seed=seed, patience=patience, backend=backend
            )
    return found


@_checked
def matrix(
    variance: Variance,
    unknown: float = 0.0,
    *,
    euler: bool = False,
    dimensions: Sequence[int] = (1, 10, 100),
    transforms: str = "lipschitz",
    step_size: float = 0.1,
) -> Iterator[tuple[Target, float]]:
    """Yield the targets of :func:`check_sampler`, each with its step size.

    Parameters
    ----------
    variance, unknown, euler, dimensions, transforms, step_size
        As of :func:`check_sampler`.
    """
    h = step_size
    for dimension in dimensions:
        yield gaussian(dimension, variance, h, unknown=unknown), h
        yield correlated_gaussian(dimension, variance, h, unknown=unknown), h
        yield normal_normal(dimension, variance, h / 5, unknown=unknown), h / 5
    for name, build, relaxation in BOUNDED:
        yield (
            one_dimensional(
                name, build, h / 2, euler=euler, transforms=transforms, relaxation=relaxation
            ),
            h / 2,
        )


BOUNDED: list[tuple[str, Callable[[int], Any], float]] = [
    ("Gamma(0.5, 0.5)", lambda size: pm.Gamma("x", 0.5, 0.5, shape=size), 16.0),
    ("Beta(0.5, 0.5)", lambda size: pm.Beta("x", 0.5, 0.5, shape=size), 16.0),
    (
        "a truncated normal",
        lambda size: pm.TruncatedNormal("x", 0.5, 1, lower=0, upper=2, shape=size),
        6.0,
    ),
    ("HalfNormal(1)", lambda size: pm.HalfNormal("x", 1, shape=size), 6.0),
]
"""Bounded variables: name, constructor and relaxation time."""


def _gaussian_moments(
    variance: float,
    unknown: float,
    along: Callable[[np.ndarray], np.ndarray] | None = None,
    suffix: str = "",
) -> list[Moment]:
    def of(power: int) -> Callable[[np.ndarray], np.ndarray]:
        def function(draws: np.ndarray) -> np.ndarray:
            values = draws if along is None else along(draws)
            powers: np.ndarray = np.mean(values**power, axis=-1)
            return powers

        return function

    return [
        Moment("mean" + suffix, of(1), 0.0),
        Moment("variance" + suffix, of(2), variance, unknown),
        Moment("fourth moment" + suffix, of(4), 3 * variance**2, 6 * variance * unknown),
    ]


def _projection(direction: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    return lambda draws: (draws @ direction)[..., None]


def _below(quantile: float) -> Callable[[np.ndarray], np.ndarray]:
    def function(draws: np.ndarray) -> np.ndarray:
        shares: np.ndarray = np.mean(draws < quantile, axis=-1)
        return shares

    return function

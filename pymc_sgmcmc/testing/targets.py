"""Targets whose moments are known, as the rows of one variable."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pymc as pm

from pymc_sgmcmc.backends.interpreting import INTERPRETER
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
from pymc_sgmcmc.kernel.policy import TRANSFORM_CHOICES
from pymc_sgmcmc.model.coordinates import coordinates_at
from pymc_sgmcmc.model.initial_point import initial_point
from pymc_sgmcmc.model.posterior import Posterior
from pymc_sgmcmc.step.step import SGMCMCStep

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


# Points of a grid over one coordinate
_GRID = 20001

_count, _positive = partial(positive_int, usual=40), partial(positive, usual=0.1)


def _several(name: str, value: Any) -> None:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise TypeError(f"{name} must be a sequence, such as a tuple of one, got {value!r:.80}.")


checked = with_checks(
    **dict.fromkeys(("dimension", "replicates", "rows", "batch_size", "draws"), _count),
    **dict.fromkeys(("step_size", "relaxation", "patience", "errors"), _positive),
    **dict.fromkeys(("variance", "build", "make_step"), a_function),
    seed=a_generator,
    unknown=partial(not_negative, usual=0.0),
    model=of_class(pm.Model),
    step=of_class(SGMCMCStep),
    target=of_class(Target),
    **dict.fromkeys(("dimensions", "backends"), _several),
    transforms=lambda name, x: isinstance(x, Mapping) or one_of(name, x, TRANSFORM_CHOICES),
)


@checked
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


@checked
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
    return Target(f"a rotated Gaussian, d = {dimension}", model, moments, 1 / precisions[0])


@checked
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
    prior_sd = 1e6
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


@checked
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
    build: Callable[[int], Any], transforms: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Grid of θ, its distribution function, and the Euler scheme's shift of it over h."""
    with pm.Model() as model:
        build(_GRID)
    point = initial_point(model)
    choice, named = (transforms, {}) if isinstance(transforms, str) else ("lipschitz", transforms)
    coordinates, start, scales = coordinates_at(model, model.value_vars, choice, point, named=named)
    posterior = Posterior(model, coordinates)
    inputs = [*posterior.phi, *posterior.scales]
    values_to_theta = model.replace_rvs_by_values(model.free_RVs)
    phi = np.linspace(-60.0, 60.0, _GRID).astype(start[0].dtype)
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


def _gaussian_moments(
    variance: float,
    unknown: float,
    along: Callable[[np.ndarray], np.ndarray] = lambda draws: draws,
    suffix: str = "",
) -> list[Moment]:
    def of(power: int) -> Callable[[np.ndarray], np.ndarray]:
        def function(draws: np.ndarray) -> np.ndarray:
            return np.asarray(np.mean(along(draws) ** power, axis=-1))

        return function

    return [
        Moment("mean" + suffix, of(1), 0.0),
        Moment("variance" + suffix, of(2), variance, unknown),
        Moment("fourth moment" + suffix, of(4), 3 * variance**2, 6 * variance * unknown),
    ]


def _projection(direction: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    return lambda draws: (draws @ direction)[..., None]


def _below(quantile: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda draws: np.asarray(np.mean(draws < quantile, axis=-1))

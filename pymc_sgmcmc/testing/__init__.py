"""Targets with known laws, and the matrix of tests that any sampler must pass.

A sampler is run on many independent replicates of a target at once, as the rows of one
variable, so that the Monte-Carlo error of a moment is computed between replicates and needs
no estimate of autocorrelation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pymc as pm

from pymc_sgmcmc.diagnostics.result import constrained
from pymc_sgmcmc.model.initial_point import initial_point
from pymc_sgmcmc.step.step import SGMCMCStep
from pymc_sgmcmc.testing.targets import (
    Moment,
    Target,
    Variance,
    checked,
    correlated_gaussian,
    gaussian,
    normal_normal,
    one_dimensional,
)

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


@checked
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
    point = initial_point(model, seed)
    step.setup_chain(np.random.default_rng(seed), burn, draws)
    kept: list[dict[str, np.ndarray]] = []
    for i in range(burn + draws):
        point, [statistics] = step.step(point)
        if statistics["rejected_updates"]:
            raise AssertionError(f"{statistics['rejected_updates']} updates were not finite")
        if i >= burn:
            kept.append(point)
    return constrained(model, {name: np.array([row[name] for row in kept]) for name in point})


@checked
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
    deviations, wrong = {}, []
    for moment in target.moments:
        # One independent number for each replicate
        means = moment.of(x).mean(axis=0)
        error = means.std(ddof=1) / np.sqrt(means.size)
        deviation = means.mean() - moment.expected
        deviations[moment.name] = deviation / error
        if abs(deviation) > errors * error + moment.bias:
            wrong.append(
                f"{moment.name}: {means.mean():.5f} ± {error:.5f}, expected "
                f"{moment.expected:.5f} (known bias included, up to {moment.bias:.1g})"
            )
    if wrong:
        raise AssertionError(f"On {target.name} at step size {step_size}: " + "; ".join(wrong))
    return deviations


@checked
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
    >>> deviations = check_sampler(
    ...     sg.SGLD,
    ...     variance=lambda h, noise: (2 + h * noise) / (2 - h),
    ...     euler=True,
    ...     dimensions=(2,),
    ... )  # doctest: +SKIP
    """
    deviations = {}
    for backend in backends:
        of: dict[str, Any] = {"euler": euler, "dimensions": dimensions, "transforms": transforms}
        for target, h in matrix(variance, unknown, step_size=step_size, **of):
            deviations[f"{target.name}, {backend}"] = check(
                target, make_step, step_size=h, seed=seed, patience=patience, backend=backend
            )
    return deviations


@checked
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
    ("Gamma(0.5, 0.5)", lambda n: pm.Gamma("x", 0.5, 0.5, shape=n), 16.0),
    ("Beta(0.5, 0.5)", lambda n: pm.Beta("x", 0.5, 0.5, shape=n), 16.0),
    ("a truncated normal", lambda n: pm.TruncatedNormal("x", 0.5, lower=0, upper=2, shape=n), 6.0),
    ("HalfNormal(1)", lambda n: pm.HalfNormal("x", 1, shape=n), 6.0),
]
"""Bounded variables: name, constructor and relaxation time."""

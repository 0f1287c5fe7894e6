"""Bias by step halving: the same time covered with half the step size."""

from __future__ import annotations

import warnings

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr

from pymc.model import Model
from pymc.stats.convergence import log_warning_stats
from scipy.special import ndtri

from pymc_sgmcmc.checks import a_generator, positive, positive_int
from pymc_sgmcmc.convergence import error_of_mean, error_of_sd, rank_rhat
from pymc_sgmcmc.diagnostics.result import checked_model, constrained, element_labels
from pymc_sgmcmc.model.initial_point import initial_point
from pymc_sgmcmc.model.minibatch import find_minibatches
from pymc_sgmcmc.model.own_gradient import has_own_gradient
from pymc_sgmcmc.model.tensor_model import in_tensors
from pymc_sgmcmc.schedules import constant
from pymc_sgmcmc.step.step import SGMCMCStep

# Share of reports on exact draws that flag anything
_FALSE_ALARMS = 0.01
# R-hat from which on chains count as not mixed
_UNMIXED = 1.05


def bias_report(
    step: SGMCMCStep | Callable[..., SGMCMCStep],
    model: Model | None = None,
    *,
    draws: int = 1000,
    tune: int | None = None,
    chains: int = 4,
    order: int | None = None,
    tolerance: float = 0.1,
    random_seed: Any = None,
    **options: Any,
) -> xr.Dataset:
    r"""Estimate the bias of means and sds from a second run with half the step size.

    R-hat and ESS compare chains with each other and see no bias that all share. Where an
    estimate m(h) has an error of order :math:`h^p`,

    .. math:: \text{bias}(h) \approx \frac{m(h) - m(h/2)}{1 - 2^{-p}}.

    Each chain is run with the step size h and then, from where it stands, over the same time
    with h/2: with twice the draws, and everything else as it was. What tuning chose for the
    chain (whitening, anchor, batches, step size and thinning) is kept for the second run.

    Parameters
    ----------
    step : SGMCMCStep or callable
        A step method, its class, or a function that makes it, called in the model's context
        with ``options``; it must sample all variables.
    model : pymc.Model, optional
        The model; taken from the context by default.
    draws : int, default 1000
        Draws of each chain with h; with h/2 there are twice as many.
    tune : int, optional
        Draws of burn-in with h, and twice as many with h/2; the step method's default of 100.
        Without tuning (a fixed ``step_size``) give as many as it needs.
    chains : int, default 4
        Chains, run one after the other in this process.
    order : {1, 2}, optional
        p. By default the ``order`` of the method's policy with full gradients, and 1 with
        minibatches: noise of gradients makes an error of first order.
    tolerance : float, default 0.1
        Bias in posterior sds that matters.
    random_seed : int or sequence of int, optional
        One seed, one result.
    **options
        Arguments for the step method, such as ``step_size``.

    Returns
    -------
    xarray.Dataset
        With the dimensions ``statistic`` ("mean", "sd") and ``parameter`` (an element of a
        variable): ``estimate``, m(h); ``half``, m(h/2); ``bias``; ``se``, its Monte-Carlo
        standard error from both runs; ``z``, their ratio; ``relative``, the bias in units of
        the sd of the second run; ``flagged``: larger than ``tolerance``, and by more standard
        errors than one in a hundred reports shows anywhere by chance. Attributes:
        ``step_size`` and ``thin``, means over the chains, ``order``, ``tolerance``,
        ``critical_z``, ``rejected_updates``.

    Raises
    ------
    ValueError, TypeError
        If an argument is outside its range, if the step size is no constant, or if the step
        method leaves variables out.
    NotImplementedError
        For a method without second moments, such as FLA with α < 2, whose error does not
        vanish with the step size.

    Warns
    -----
    UserWarning
        If R-hat shows that chains have not mixed, so that standard errors are too small.

    Notes
    -----
    What is not flagged is not proven right: a bias below ``critical_z * se`` stays unseen,
    and so does what both runs share, such as a mode that no chain found. Raise ``draws`` to see
    more. Chains log the warnings that ``pm.sample`` logs.
    Where JAX runs the updates it is running in this process afterwards, and ``pm.sample`` on
    several forked processes is refused: sample first, or pass ``backend="numba"``.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_sgmcmc as sg
    >>> untuned = {"thin": 20, "scale": None, "gradient": "plain", "batches": 1}
    >>> with pm.Model():
    ...     x = pm.Normal("x")
    ...     report = bias_report(sg.SGLD, step_size=0.5, random_seed=1, **untuned)
    >>> report["flagged"].sel(parameter="x").values  # the mean is right, the sd is not
    array([False,  True])
    """
    model = checked_model(model)
    rng = a_generator("random_seed", random_seed)
    draws = positive_int("draws", draws, usual=1000)
    chains = positive_int("chains", chains, usual=4)
    if draws < 4 or chains * draws < 100:
        raise ValueError(
            f"draws={draws} of chains={chains} chains are too few for a standard error: take 4 or "
            "more of each chain, and 100 or more in all."
        )
    tolerance = positive("tolerance", tolerance, usual=0.1)
    if order is not None and not (np.ndim(order) == 0 and order in (1, 2)):
        raise ValueError(f"order must be 1 or 2, or left out, got {order!r}.")
    made = _made(step, model, options)
    tune = made.default_tune_steps if tune is None else positive_int("tune", tune, usual=100)
    if order is None:
        order = 2 if _is_second_order(made) else 1

    options_before = made.options
    results = []
    try:
        for own in rng.spawn(chains):
            made.options = options_before
            results.append(_one_chain(made, own, tune, draws))
    finally:
        made.options = options_before
    full, half, step_sizes, thins, rejected = zip(*results, strict=True)
    return _report(model, [full, half], order, tolerance).assign_attrs(
        step_size=float(np.mean(step_sizes)),
        thin=float(np.mean(thins)),
        order=order,
        draws=draws,
        chains=chains,
        rejected_updates=sum(rejected),
    )


def _made(step: Any, model: Model, options: dict[str, Any]) -> SGMCMCStep:
    """Make the step method, and refuse what halving says nothing about."""
    if isinstance(step, SGMCMCStep):
        if options:
            raise TypeError(
                f"bias_report has no argument '{next(iter(options))}' where step is made already. "
                f"Pass the class: bias_report(sg.{type(step).__name__}, step_size=...)."
            )
        if in_tensors(step.model) is not model:
            raise ValueError("step was made for another model than model. Make it for this one.")
        made = step
    elif callable(step):
        with model:
            made = step(**options)
    else:
        made = step
    if not isinstance(made, SGMCMCStep):
        raise TypeError(
            "step must be a step method of this package, its class or a function that makes it, "
            f"got {step!r:.80}."
        )
    method = type(made).__name__
    if not made.policy().second_moments:
        raise NotImplementedError(
            f"bias_report cannot judge {method} with alpha={getattr(made, 'alpha', '?')}: its "
            "error does not vanish with the step size, so that halving does not see it, and it "
            "has no sds. Compare medians and quantiles with a run of CoRVSGLD."
        )
    schedule = made.options.step_size
    if schedule is not None and not isinstance(schedule, constant):
        raise ValueError(
            f"step_size is the schedule {schedule!r}, which has no half. Pass a number or 'auto'."
        )
    left = [rv.name for rv in model.free_RVs if rv.name not in made.names]
    if left:
        raise ValueError(
            f"The step method leaves out the variable '{left[0]}', and bias_report runs it alone. "
            "Leave vars out; discrete variables have to be summed out of the model."
        )
    return made


def _is_second_order(step: SGMCMCStep) -> bool:
    model = in_tensors(step.model)
    graphs = [*model.observed_RVs, *model.rvs_to_values.values(), *model.potentials]
    noisy = find_minibatches(graphs) or has_own_gradient(graphs)
    exact = step.options.batch_dim is None and not noisy
    return exact and step.policy().order == 2


def _one_chain(
    step: SGMCMCStep, rng: np.random.Generator, tune: int, draws: int
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], float, int, int]:
    """Run with h and, from there, with h/2.

    Return the draws of both, in PyMC's value variables, h, its thinning and rejected updates.
    """
    first, second = rng.spawn(2)
    step.setup_chain(first, tune, draws)
    start = initial_point(step.model, int(rng.integers(2**30)))
    point, full, rejected, last = _run(step, start, tune, draws)
    # What both runs have in common, such as draws without density, halving does not see
    log_warning_stats(last)
    before, schedule = step.chain, step.options.step_size
    settings = before.settings
    assert settings is not None
    h: Any = schedule.h if isinstance(schedule, constant) else settings.step_size
    if schedule is not None:
        step.options = replace(step.options, step_size=constant(h / 2))
    step.setup_chain(second, 2 * tune, 2 * draws)
    step.chain = replace(
        step.chain,
        psi=before.psi,
        extra=before.extra,
        scales=before.scales,
        origin=before.origin,
        settings=replace(settings, step_size=h / 2, adapts=False),
        row_order=before.row_order,
    )
    _, half, rejected_of_half, _ = _run(step, point, 2 * tune, 2 * draws)
    return full, half, float(h), settings.thin, rejected + rejected_of_half


def _run(
    step: SGMCMCStep, point: Any, tune: int, draws: int
) -> tuple[Any, dict[str, np.ndarray], int, list[dict[str, Any]]]:
    """Return the last point, the draws in PyMC's value variables, rejected updates, last stats."""
    kept: dict[str, list[np.ndarray]] = {name: [] for name in point}
    rejected = 0
    stats: list[dict[str, Any]] = []
    for i in range(tune + draws):
        point, stats = step.step(point)
        if i >= tune:
            rejected += stats[0]["rejected_updates"]
            for name, value in point.items():
                kept[name].append(value)
    return point, {name: np.stack(values) for name, values in kept.items()}, rejected, stats


def _report(
    model: Model, runs: Sequence[Sequence[dict[str, np.ndarray]]], order: int, tolerance: float
) -> xr.Dataset:
    labels: list[str] = []
    estimates, errors, rhat = [], [], 1.0
    for run in runs:
        draws = {name: np.concatenate([chain[name] for chain in run]) for name in run[0]}
        variables = constrained(model, draws)
        if not labels:
            for name, x in variables.items():
                labels += element_labels(model, name, x.shape[1:])
        columns = [x.reshape(len(x), -1) for x in variables.values()]
        flat = np.concatenate(columns, axis=1, dtype=float)
        x = flat.reshape(len(run), -1, len(labels)).transpose(2, 0, 1)  # (element, chain, draw)
        estimates.append(np.stack([x.mean(axis=(1, 2)), x.std(axis=(1, 2), ddof=1)]))
        errors.append(np.stack([error_of_mean(x), error_of_sd(x)]))
        rhat = max(rhat, float(np.nanmax(rank_rhat(x), initial=1.0)))
    if rhat > _UNMIXED:
        warnings.warn(
            f"R-hat is {rhat:.2f}: the chains have not mixed, and the standard errors of the bias "
            "are too small. Raise tune, draws or thin.",
            UserWarning,
            stacklevel=3,
        )
    share = 1 - 2.0**-order
    full, half = estimates
    bias, error = (full - half) / share, np.hypot(*errors) / share
    with np.errstate(all="ignore"):
        z, relative = bias / error, bias / half[1]
    critical = float(ndtri(1 - _FALSE_ALARMS / 2 / bias.size))
    flagged = (np.abs(relative) > tolerance) & (np.abs(z) > critical)
    arrays = {
        "estimate": full, "half": half, "bias": bias, "se": error, "z": z,
        "relative": relative, "flagged": flagged,
    }  # fmt: skip
    return xr.Dataset(
        {name: (("statistic", "parameter"), array) for name, array in arrays.items()},
        coords={"statistic": ["mean", "sd"], "parameter": labels},
        attrs={"critical_z": critical, "tolerance": tolerance},
    )

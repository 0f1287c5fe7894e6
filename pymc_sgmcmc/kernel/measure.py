"""What is measured of a draw, in symbols."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt

from pymc.exceptions import SamplingError
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.kernel.blocks import Blocks
from pymc_sgmcmc.kernel.loop import looped, unchanged
from pymc_sgmcmc.kernel.ravel import Ravel
from pymc_sgmcmc.kernel.update import Update
from pymc_sgmcmc.model.posterior import Posterior


def measured(
    update: Update, at: list[TensorVariable], fresh: list[TensorVariable]
) -> tuple[list[TensorVariable], Blocks, dict[str, TensorVariable]]:
    """Return graphs of PyMC's values at the state ``at``, and of a gradient and statistics there.

    Half the squared difference of the estimates from two ``fresh`` batches, the first dimension,
    is the variance of the noise.
    """
    sampler, estimator, state = update.sampler, update.estimator, update.in_model
    posterior, psi = estimator.posterior, at[: len(state.psi)]
    values = estimator.at(posterior.values, psi, [rows[0] for rows in fresh])
    log_density, gradient, *second = _estimates(update, psi, fresh)
    away = Blocks(psi) - Blocks(state.origin)
    own = sampler.statistics(state.extra_of(at))
    if set(own) != set(sampler.own_statistics):
        raise SamplingError(
            f"{type(sampler).__name__}.statistics() returns {sorted(own)}, and own_statistics "
            f"names {sorted(sampler.own_statistics)}. Let both have the same names."
        )
    for name, value in own.items():
        if isinstance(value, Blocks) or pt.as_tensor(value).ndim:
            raise SamplingError(
                f"{type(sampler).__name__}.statistics() must return scalars, such as x.mean(), and "
                f"'{name}' is none."
            )
    statistics = {
        "batch_logp": log_density,
        "grad_norm": pt.sqrt(gradient.map(pt.sqr).sum()),
        "config_temperature": _mean_of_line(posterior, away * gradient),
        "noise_ratio": pt.constant(0.0),
        **{name: pt.as_tensor(value) for name, value in own.items()},
    }
    for other in second:
        h, known = update.steps()
        noise = sampler.in_metric(
            gradient - other, Blocks(psi), state.extra_of(at), update.variables
        )
        variance = noise.map(lambda x: x**2 / 2)
        statistics["noise_ratio"] = sampler.widening(h, variance, known).mean()
    return posterior.wrapped(values), gradient, statistics


def _estimates(update: Update, psi: list[TensorVariable], fresh: list[TensorVariable]) -> list[Any]:
    """Return the log density and ∇U from the first batch, then ∇U from the second.

    A loop over the two is compiled in less time than both. Without batches there is no second.
    """
    estimator, rows = update.estimator, update.row_sets[0]
    inner = [x.type() for x in psi] if rows else psi
    [log_density] = estimator.at([estimator.log_density], inner, rows)
    gradient = estimator(inner, rows)
    if not rows:
        return [log_density, gradient]
    log_densities, *gradients = looped(
        [log_density, *gradient],
        dict(zip(rows, fresh, strict=True)),
        {},
        dict(zip(inner, psi, strict=True)) | unchanged(update.inputs.flat),
        update.backend,
    )
    return [log_densities[0], Blocks([g[0] for g in gradients]), Blocks([g[1] for g in gradients])]


def wrapped(update: Update, psi: list[TensorVariable]) -> list[TensorVariable]:
    """Return ψ with circular coordinates reduced to the period about the origin.

    Whitening does not mix them with others, so that a period changes their own ψ alone.
    """
    reduced, whitening = [], update.estimator.whitening
    scales = whitening.diagonal(psi, whitening.symbols)
    masks = _masks(update.estimator.posterior, psi)
    for x, o, scale, circular in zip(psi, update.in_model.origin, scales, masks, strict=True):
        if not circular.any():
            reduced.append(x)
            continue
        period = 2 * np.pi / scale
        moved = (x - period * pt.round((x - o) / period)).astype(x.dtype)
        reduced.append(moved if circular.all() else pt.switch(circular, moved, x))
    return reduced


def _mean_of_line(posterior: Posterior, products: Blocks) -> TensorVariable:
    """Mean over coordinates, except those on a circle, which have no such law."""
    if not posterior.circular.any():
        return products.mean()
    on_line = [
        part.reshape((-1,))[np.flatnonzero(~circular)]
        for part, circular in zip(products, _masks(posterior, list(products)), strict=True)
        if not circular.all()
    ]
    return Blocks(on_line).mean() if on_line else pt.constant(1.0)


def _masks(posterior: Posterior, parts: Sequence[TensorVariable]) -> list[np.ndarray]:
    """Return which elements of the blocks lie on a circle."""
    return Ravel([part.type.shape for part in parts]).split(posterior.circular)

"""Stein thinning: the draws that together are nearest to the posterior."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from pymc.model import Model

from pymc_sgmcmc.checks import positive_int
from pymc_sgmcmc.diagnostics.model_density import density_of
from pymc_sgmcmc.diagnostics.result import Draws, checked_model, draws_of
from pymc_sgmcmc.diagnostics.standardised import Standard
from pymc_sgmcmc.diagnostics.stein_kernel import SteinKernel

__all__ = ["greedy", "stein_thinning"]

GROUP = "posterior_thinned"


def stein_thinning(
    result: Any,
    size: int,
    model: Model | None = None,
    *,
    batch_size: int | None = None,
    batch_dim: str | None = None,
    draws: int | None = None,
    temperature: float = 1.0,
    backend: str = "auto",
) -> xr.DataTree:
    r"""Choose ``size`` draws that together represent the posterior best.

    The j-th is the minimiser over all draws x of

    .. math:: \tfrac12 k_p(x, x) + \sum_{i < j} k_p(x_i, x),

    which lowers the kernel Stein discrepancy of the chosen ones greedily (Riabiz et al., 2022
    [1]_); kernel and coordinates are those of :func:`ksd` with their defaults. Draws from
    burn-in are avoided, and a law that is too wide is corrected within what it covers. A draw
    may be chosen more than once. As KSD, it does not see the weights of separate modes, and
    chosen draws are no longer exchangeable: R-hat and ESS of them mean nothing.

    Parameters
    ----------
    result : xarray.DataTree
        What ``pm.sample`` returned.
    size : int
        How many draws.
    model : pymc.Model, optional
        The model that was sampled; taken from the context by default.
    batch_size, batch_dim : optional
        As of the step methods, for a model without ``pm.Minibatch``: the full gradient is then
        summed over blocks of so many rows, which takes less memory.
    draws : int or None, default None
        Most draws of each chain that are candidates, evenly spaced; None for all. The cost is
        one gradient of the full data for each, and ``size`` times their number of kernels.
    temperature : float, default 1.0
        T of the step method.
    backend : {"auto", "jax", "numba"}, default "auto"
        Where gradients are computed; see the notes of :func:`ksd`.

    Returns
    -------
    xarray.DataTree
        The result with a further group ``posterior_thinned``: the chosen draws of all
        variables in the order in which they were chosen, as one chain, with the coordinates
        ``source_chain`` and ``source_draw``. Its attribute ``ksd`` is their discrepancy.

    Raises
    ------
    ValueError, TypeError
        If an argument is outside its range, if the result does not fit the model, or if a
        draw or a gradient is not finite.
    NotImplementedError
        If the model has discrete or circular variables.

    References
    ----------
    .. [1] Riabiz, Chen, Cockayne, Swietach, Niederer, Mackey, Oates (2022). Optimal thinning
       of MCMC output. JRSS B 84, 1059-1081.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import xarray as xr
    >>> exact = np.random.default_rng(0).normal(size=(1, 300))
    >>> with pm.Model():
    ...     x = pm.Normal("x")
    ...     posterior = xr.Dataset({"x": (("chain", "draw"), exact)})
    ...     dt = stein_thinning(xr.DataTree.from_dict({"posterior": posterior}), 20)
    >>> dict(dt["posterior_thinned"]["x"].sizes)
    {'chain': 1, 'draw': 20}
    """
    model = checked_model(model)
    size = positive_int("size", size, usual=100)
    if not isinstance(result, xr.DataTree):
        raise TypeError(
            f"result must be the DataTree that pm.sample returns, got {type(result).__name__}."
        )
    chosen = draws_of(result, model, group="posterior", limit=draws)
    if size > len(chosen.chain):
        raise ValueError(
            f"size={size} draws cannot be chosen out of {len(chosen.chain)}. Pass a smaller size."
        )
    density = density_of(
        model, backend=backend, temperature=temperature, batch_size=batch_size, batch_dim=batch_dim
    )
    density.refuse_circular("Stein thinning")
    phi = density.positions(chosen.values)
    standard = Standard.of(phi)
    scores = -standard.gradients(density.gradients(phi))
    kernel = SteinKernel(standard.positions(phi), scores)
    which = greedy(kernel, size)
    discrepancy = np.sqrt(max(kernel.rows(which)[:, which].mean(), 0.0))
    thinned: xr.DataTree = result.copy()
    thinned[GROUP] = xr.DataTree(_selected(chosen, which).assign_attrs(ksd=float(discrepancy)))
    return thinned


def greedy(kernel: SteinKernel, size: int) -> np.ndarray:
    """Return the numbers of the positions that Stein thinning takes, shape (size,)."""
    total = kernel.diagonal() / 2
    which = np.empty(size, dtype=int)
    for j in range(size):
        which[j] = np.argmin(total)
        total += kernel.rows(which[j : j + 1])[0]
    return which


def _selected(chosen: Draws, which: np.ndarray) -> xr.Dataset:
    chain, draw = chosen.chain[which], chosen.draw[which]
    posterior = chosen.posterior
    labels: dict[str, Any] = {
        f"source_{name}": ("draw", posterior[name].values[index])
        for name, index in (("chain", chain), ("draw", draw))
    }
    at = {"chain": xr.DataArray(chain, dims="draw"), "draw": xr.DataArray(draw, dims="draw")}
    return (
        posterior.isel(at)
        .drop_vars(["chain", "draw"], errors="ignore")
        .expand_dims(chain=[0])
        .assign_coords({"draw": np.arange(len(which)), **labels})
    )

"""Kernel Stein discrepancy of draws from their model."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from pymc.model import Model

from pymc_sgmcmc.checks import a_generator, one_of, positive_int
from pymc_sgmcmc.diagnostics.model_density import density_of
from pymc_sgmcmc.diagnostics.result import checked_model, draws_of
from pymc_sgmcmc.diagnostics.standardised import Standard
from pymc_sgmcmc.diagnostics.stein_kernel import SteinKernel

__all__ = ["ksd"]

_PAIRS = 10_000


def ksd(
    result: Any,
    model: Model | None = None,
    *,
    group: str = "posterior",
    reference: Any = None,
    scale: str = "covariance",
    batches: int | None = None,
    batch_size: int | None = None,
    batch_dim: str | None = None,
    draws: int | None = 500,
    temperature: float = 1.0,
    backend: str = "auto",
    random_seed: Any = None,
) -> xr.Dataset:
    r"""Kernel Stein discrepancy: how far draws are from the posterior, bias included.

    It needs the gradient of the log density and no draws from the posterior:

    .. math:: \mathrm{KSD}^2 = \frac{1}{n^2} \sum_{i,j} k_p(x_i, x_j),

    with the Stein kernel :math:`k_p` of the inverse multiquadric
    :math:`(1 + r^\top \Gamma^{-1} r)^{-1/2}` [1]_. Where the posterior is log-concave far out it
    goes to zero only if the law of the draws goes to the posterior, so that it sees what R-hat
    does not: spreads that are too wide because of a large step size or of gradient noise. It
    hardly sees wrong weights of separate modes.

    x are the draws in PyMC's unconstrained coordinates, standardised to mean 0 and covariance
    I (above 512 dimensions, or with fewer than five draws for each, to variances 1), and the
    score is that of the density in them, Jacobian included. It has no unit; compare it with
    ``expected``, and between results with the same ``reference`` and the same number of draws.

    Parameters
    ----------
    result : xarray.DataTree or xarray.Dataset
        What ``pm.sample`` returned, or its posterior group.
    model : pymc.Model, optional
        The model that was sampled, minibatched or not; taken from the context by default.
    group : str, default "posterior"
        The group that is examined.
    reference : xarray.DataTree or xarray.Dataset, optional
        Result whose posterior's mean and covariance define the coordinates; ``result`` by
        default. Give the same one to all results that are to be compared.
    scale : {"covariance", "median"}, default "covariance"
        Γ: the covariance of the reference, which sees small departures best; or the squared
        median distance between draws times I.
    batches : int, optional
        Estimate each score from so many minibatches in place of all the data. Each draw has
        its own, and terms with i = j are left out, so that KSD² stays unbiased; the noise
        shows in ``expected``.
    batch_size, batch_dim : optional
        As of the step methods, for a model without ``pm.Minibatch``: the rows of a batch, and
        their dim.
    draws : int or None, default 500
        Most draws of each chain, evenly spaced; None for all. The cost is this many gradients
        of the full data for each chain, and grows with its square in the kernel.
    temperature : float, default 1.0
        T of the step method.
    backend : {"auto", "jax", "numba"}, default "auto"
        Where gradients are computed.
    random_seed : int, sequence of int or numpy.random.Generator, optional
        For ``batches`` and for the median.

    Returns
    -------
    xarray.Dataset
        ``ksd`` for each chain and ``ksd_all`` for all draws together; ``ksd_squared``,
        ``ksd_squared_all``, which can be negative where scores are estimated from batches
        (then KSD is given as 0); ``expected``, ``expected_all``: the root of the mean of KSD²
        if the draws were exact and independent; with batches, of its standard deviation.
        Correlated draws have more: about :math:`\sqrt{n / \mathrm{ESS}}` times as much.
        Attributes: ``draws`` of each chain, ``scale``, ``batches`` (0 for all data), ``dimension``.

    Raises
    ------
    ValueError, TypeError
        If an argument is outside its range, if the result does not fit the model, or if a
        draw or a gradient is not finite.
    NotImplementedError
        If the model has discrete or circular variables.

    Notes
    -----
    Where JAX computes the gradients it is running in this process afterwards, and
    ``pm.sample`` on several forked processes is refused: sample first, pass
    ``backend="numba"`` here, or ``mp_ctx="forkserver"`` there.

    References
    ----------
    .. [1] Gorham, Mackey (2017). Measuring sample quality with kernels. ICML.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import xarray as xr
    >>> with pm.Model():
    ...     x = pm.Normal("x")
    ...     exact = np.random.default_rng(0).normal(size=(2, 500))
    ...     wide = xr.Dataset({"x": (("chain", "draw"), 1.5 * exact)})
    ...     found = ksd(wide)
    >>> bool(found["ksd_all"] > 3 * found["expected_all"])
    True
    """
    model = checked_model(model)
    rng = a_generator("random_seed", random_seed)
    one_of("scale", scale, ("covariance", "median"))
    if batches is not None:
        positive_int("batches", batches, usual=1)
    chosen = draws_of(result, model, group=group, limit=draws)
    other = None
    if reference is not None:
        other = draws_of(reference, model, group="posterior", limit=None)
    density = density_of(
        model,
        backend=backend,
        temperature=temperature,
        batch_size=batch_size,
        batch_dim=batch_dim,
    )
    density.refuse_circular("the kernel Stein discrepancy")
    if batches is not None and not density.batch_size:
        raise ValueError(
            "batches estimates scores from minibatches, and the model has no pm.Minibatch. Pass "
            "batch_size= and batch_dim= as to the step method, or leave batches out."
        )
    phi = density.positions(chosen.values)
    standard = Standard.of(phi if other is None else density.positions(other.values))
    psi = standard.positions(phi)
    if batches is None:
        gradients = density.gradients(phi)
    else:
        density.shuffle(rng)
        gradients = np.mean([density.batch_gradients(phi, rng) for _ in range(batches)], axis=0)
    kernel = SteinKernel(
        psi, -standard.gradients(gradients), 1.0 if scale == "covariance" else _median(psi, rng)
    )
    labels = chosen.posterior["chain"].values
    return _dataset(kernel, chosen.chains, labels, batches is not None).assign_attrs(
        draws=chosen.each, scale=scale, batches=batches or 0, dimension=density.dimension
    )


def _median(psi: np.ndarray, rng: np.random.Generator) -> float:
    """Squared median distance between positions."""
    i, j = rng.integers(len(psi), size=(2, _PAIRS))
    squared = np.sum((psi[i] - psi[j]) ** 2, axis=1)[i != j]
    median = float(np.median(squared))
    if not median > 0:
        raise ValueError(
            "scale='median' needs draws that differ, and more than half of the pairs are equal. "
            "Take scale='covariance', or another result."
        )
    return median


def _dataset(kernel: SteinKernel, chains: int, labels: np.ndarray, noisy: bool) -> xr.Dataset:
    """Sum the matrix between and within chains."""
    each = len(kernel) // chains
    sums, squares = np.zeros((chains, chains)), np.zeros((chains, chains))
    diagonal = kernel.diagonal()
    for which, block in kernel.blocks():
        if noisy:
            # A score's own noise would count squared
            rows = np.arange(len(block))
            block[rows, which.start + rows] = 0.0
        owner = np.arange(which.start, which.stop) // each
        np.add.at(sums, owner, block.reshape(len(block), chains, each).sum(axis=2))
        if noisy:
            np.add.at(squares, owner, (block**2).reshape(len(block), chains, each).sum(axis=2))
    of_chain = diagonal.reshape(chains, each).sum(axis=1)

    def squared(total: Any, n: int) -> Any:
        return total / (n * (n - 1)) if noisy else total / n**2

    def expected(trace: Any, square: Any, n: int) -> Any:
        if not noisy:
            return np.sqrt(trace) / n
        # Variance of a degenerate U-statistic
        return (2 * square) ** 0.25 / np.sqrt(n * (n - 1))

    one = squared(np.diag(sums), each)
    all_ = squared(sums.sum(), len(kernel))
    return xr.Dataset(
        {
            "ksd": ("chain", np.sqrt(np.maximum(one, 0))),
            "ksd_all": float(np.sqrt(max(all_, 0))),
            "expected": ("chain", expected(of_chain, np.diag(squares), each)),
            "expected_all": float(expected(diagonal.sum(), squares.sum(), len(kernel))),
            "ksd_squared": ("chain", one),
            "ksd_squared_all": float(all_),
        },
        coords={"chain": labels},
    )

"""Kernel Stein discrepancy of draws from their model, and thinning that lowers it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import xarray as xr

from pymc.model import Model

from pymc_sgmcmc.checks import a_generator, one_of, positive_int
from pymc_sgmcmc.diagnostics.model_density import Standard, density_of
from pymc_sgmcmc.diagnostics.result import Draws, checked_model, draws_of

# Pairs of positions whose median distance is taken
_PAIRS = 10_000
# Numbers in one block of the kernel matrix: a processor's cache holds it
_BLOCK = 2**15


def ksd(
    result: Any,
    model: Model | None = None,
    *,
    group: str = "posterior",
    reference: Any = None,
    scale: str = "covariance",
    batches: int | None = None,
    batch_size: int | None = None,
    batch_dim: str | Mapping[str, int] | None = None,
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
        What ``pm.sample`` returned, or its posterior group. The weights of a schedule's draws are
        known of ``dt`` and ``dt.posterior``, not of a Dataset or a group that was cut out.
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
        Most draws of each chain, evenly spaced in the ``weight`` that a schedule gives them; None
        for as many as there are. The cost is this many gradients
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
    ...     discrepancy = ksd(wide)
    >>> bool(discrepancy["ksd_all"] > 3 * discrepancy["expected_all"])
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
        other = draws_of(reference, model, group="posterior", limit=None).values
    density = density_of(
        model, backend=backend, temperature=temperature, batch_size=batch_size, batch_dim=batch_dim
    )
    density.refuse_circular("the kernel Stein discrepancy")
    if batches is not None and not density.batch_size:
        raise ValueError(
            "batches estimates scores from minibatches, and the model has no pm.Minibatch. Pass "
            "batch_size= and batch_dim= as to the step method, or leave batches out."
        )
    phi = density.positions(chosen.values)
    standard = Standard.of(phi if other is None else density.positions(other))
    psi = standard.positions(phi)
    if batches is None:
        gradients = density.gradients(phi)
    else:
        density.shuffle(rng)
        estimates = [density.batch_gradients(phi, None, rng)[0] for _ in range(batches)]
        gradients = np.mean(estimates, axis=0)
    squared_length = 1.0 if scale == "covariance" else _median(psi, rng)
    kernel = SteinKernel(psi, -standard.gradients(gradients), squared_length)
    labels = chosen.posterior["chain"].values
    return _dataset(kernel, labels, batches is not None).assign_attrs(
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


def _dataset(kernel: SteinKernel, labels: np.ndarray, noisy: bool) -> xr.Dataset:
    """Sum the kernel's matrix within each chain and over all, without its diagonal if noisy."""
    chains = len(labels)
    each = len(kernel) // chains
    sums, squares = np.zeros((2, chains, chains))
    for which, block in kernel.blocks():
        if noisy:
            # A score's own noise would count squared
            rows = np.arange(len(block))
            block[rows, which.start + rows] = 0.0
        owner = np.arange(which.start, which.stop) // each
        by_chain = len(block), chains, each
        np.add.at(sums, owner, block.reshape(by_chain).sum(axis=2))
        if noisy:
            np.add.at(squares, owner, (block**2).reshape(by_chain).sum(axis=2))
    diagonal = kernel.diagonal().reshape(chains, each).sum(axis=1)

    def discrepancy(total: Any, square: Any, trace: Any, n: int) -> tuple[Any, Any]:
        """Return KSD² of n draws, and the root of its mean or variance for exact draws."""
        if noisy:
            # Variance of a degenerate U-statistic
            return total / (n * (n - 1)), (2 * square) ** 0.25 / np.sqrt(n * (n - 1))
        return total / n**2, np.sqrt(trace) / n

    one, expected = discrepancy(np.diag(sums), np.diag(squares), diagonal, each)
    all_, expected_all = discrepancy(sums.sum(), squares.sum(), diagonal.sum(), len(kernel))
    return xr.Dataset(
        {
            "ksd": ("chain", np.sqrt(np.maximum(one, 0))),
            "ksd_all": float(np.sqrt(max(all_, 0))),
            "expected": ("chain", expected),
            "expected_all": float(expected_all),
            "ksd_squared": ("chain", one),
            "ksd_squared_all": float(all_),
        },
        coords={"chain": labels},
    )


def stein_thinning(
    result: Any,
    size: int,
    model: Model | None = None,
    *,
    batch_size: int | None = None,
    batch_dim: str | Mapping[str, int] | None = None,
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
        Most draws of each chain that are candidates, evenly spaced in the ``weight`` that a
        schedule gives them; None for as many as there are. The cost is one gradient of the full
        data for each, and ``size`` times their number of kernels.
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
    if not isinstance(result, xr.DataTree) or "posterior" not in result.children:
        raise TypeError(
            "result must be the DataTree that pm.sample returns, with its posterior, got "
            f"{type(result).__name__}."
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
    which = _greedy(kernel, size)
    discrepancy = np.sqrt(max(kernel.rows(which)[:, which].mean(), 0.0))
    thinned: xr.DataTree = result.copy()
    thinned["posterior_thinned"] = xr.DataTree(
        _selected(chosen, which).assign_attrs(ksd=float(discrepancy))
    )
    return thinned


def _greedy(kernel: SteinKernel, size: int) -> np.ndarray:
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


class SteinKernel:
    r"""Langevin Stein kernel of :math:`k(x, y) = q^{-1/2}`, :math:`q = 1 + |x - y|^2 / \ell^2`.

    With :math:`r = x - y` and scores :math:`s = -\nabla U`,

    .. math:: k_p(x, y) = \frac{d}{\ell^2} q^{-3/2} - \frac{3 |r|^2}{\ell^4} q^{-5/2}
       - \frac{r \cdot (s(y) - s(x))}{\ell^2} q^{-3/2} + s(x) \cdot s(y)\, q^{-1/2},

    whose mean over :math:`x, y \sim Q` independent is the squared discrepancy of Q and
    :math:`e^{-U}` (Gorham and Mackey, 2017).
    The arguments are positions and their scores, of shape (n, d), and :math:`\ell^2`.
    """

    def __init__(
        self, positions: np.ndarray, scores: np.ndarray, squared_length: float = 1.0
    ) -> None:
        # In units of the length
        length = np.sqrt(squared_length)
        self._x = positions / length
        self._s = scores * length
        self._unit = 1 / squared_length
        self._xx = np.sum(self._x**2, axis=1)
        self._xs = np.sum(self._x * self._s, axis=1)

    def __len__(self) -> int:
        return len(self._x)

    def diagonal(self) -> np.ndarray:
        """Return k_p(x, x) of every position, shape (n,)."""
        return self._unit * (self._x.shape[1] + np.sum(self._s**2, axis=1))

    def rows(self, which: slice | np.ndarray) -> np.ndarray:
        """Return k_p of these positions with all, shape (rows, n)."""
        x, s = self._x[which], self._s[which]
        q = x @ (-2 * self._x.T)
        q += self._xx[which, None] + 1
        q += self._xx
        root = 1 / np.sqrt(np.maximum(q, 1.0, out=q), out=q)
        squared = root**2
        # r · (s(x) − s(y)), and (q − 1) / q = 1 − 1 / q
        kernel = x @ -self._s.T
        kernel -= s @ self._x.T
        kernel += self._xs[which, None] + (x.shape[1] - 3)
        kernel += self._xs
        kernel += 3 * squared
        kernel *= squared
        kernel += s @ self._s.T
        kernel *= root
        kernel *= self._unit
        return np.asarray(kernel)

    def blocks(self) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield the matrix in blocks of rows, each with the rows that it has."""
        n = len(self)
        size = max(1, _BLOCK // n)
        for start in range(0, n, size):
            which = slice(start, min(start + size, n))
            yield which, self.rows(which)

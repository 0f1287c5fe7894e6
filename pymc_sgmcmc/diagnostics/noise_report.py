"""The noise of minibatch gradients, for each variable, and how many batches it asks for."""

from __future__ import annotations

import math
import warnings

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from pymc.model import Model

from pymc_sgmcmc.checks import a_generator, positive, positive_int
from pymc_sgmcmc.diagnostics.model_density import (
    DRAWS_A_DIMENSION,
    ModelDensity,
    Standard,
    density_of,
)
from pymc_sgmcmc.diagnostics.result import checked_model, dims_of, draws_of, point_of
from pymc_sgmcmc.model.recognise import LARGEST_DENSE
from pymc_sgmcmc.tuning.modes import newton
from pymc_sgmcmc.tuning.whiten import inverse_root, sds_of

_ROUNDS = 8
# Relative sd over √(B/N), between permutations, of the noise of blocks of once-permuted rows
_OF_A_PERMUTATION = 1.15
_LARGEST_ARRAY = 2**24
_ESTIMATORS = ["plain", "control_variates"]


def gradient_noise(
    model: Model | None,
    point: Any,
    *,
    centre: Mapping[str, Any] | None = None,
    largest: float = 1.5,
    batches: int = 1024,
    batch_size: int | None = None,
    batch_dim: str | Mapping[str, int] | None = None,
    temperature: float = 1.0,
    backend: str = "auto",
    random_seed: Any = None,
) -> xr.Dataset:
    r"""Variance of minibatch gradients, with and without control variates.

    The variances are those of one batch of the model's size, in whitened coordinates ψ, in which
    the posterior has unit scale:

    .. math:: \sigma^2_{\text{plain}} = \operatorname{Var} \hat g(\psi), \qquad
       \sigma^2_{\text{control}} =
       \operatorname{Var}\,(\hat g(\psi) - \hat g(\bar\psi)),

    both from the same rows [1]_, with the anchor :math:`\bar\psi` in the centre. A Langevin
    method of step size h widens variances by the share hσ²/2.

    Parameters
    ----------
    model : pymc.Model or None
        A model with ``pm.Minibatch``, or one for which ``batch_size`` and ``batch_dim`` are
        given; None for the one in context.
    point : xarray.DataTree, xarray.Dataset or dict
        A result, for the noise at eight of its draws, in units of their covariance; or
        a value for each variable in its own space, such as
        ``dt.posterior.mean(("chain", "draw"))``, in units of the curvature there.
    centre : dict, optional
        The anchor, a value for each variable. By default the mean of the draws; or ``point``,
        and then the noise is taken at eight places about one posterior sd away from it.
    largest : float, default 1.5
        The variance that is wanted for the suggestions. Tuning allows Langevin methods 1.5 and
        ``MSGNHT`` 6 (up to 24 with more than 512 parameters).
    batches : int, default 1024
        Batches that are drawn.
    batch_size, batch_dim : optional
        As of the step methods, for a model without ``pm.Minibatch``: the rows of a batch, and
        their dim.
    temperature : float, default 1.0
        T of the step method.
    backend : {"auto", "jax", "numba"}, default "auto"
        Where gradients are computed; see the notes of :func:`ksd`.
    random_seed : int, sequence of int or numpy.random.Generator, optional
        For batches and places.

    Returns
    -------
    xarray.Dataset
        For each variable σ² of its elements in units of their posterior sds, with the
        dimension ``estimator`` ("plain", "control_variates") before its own (those of its
        unconstrained coordinates, where their shape is another). Further
        ``largest_variance``, the largest of any direction (above 512 dimensions of any
        coordinate); ``suggested_batches``, the K for
        which the mean of K batches has at most the variance ``largest``;
        ``suggested_batch_size``, as many rows in one batch. Attributes: ``batch_size``,
        ``rows``, ``gradient``, the quieter estimator ("control_variates" only below half the
        variance, for it costs twice), and ``relative_error`` of an element's σ².

    Raises
    ------
    ValueError, TypeError
        If the model has no minibatch, or an argument is outside its range or does not fit the
        model.
    NotImplementedError
        If the model has discrete variables, or above 512 dimensions where ``point`` is no
        result.

    Warns
    -----
    UserWarning
        If a result has too few draws for a covariance.

    References
    ----------
    .. [1] Baker, Fearnhead, Fox, Nemeth (2019). Control variates for stochastic gradient
       MCMC. Statistics and Computing 29, 599-615.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> data = np.random.default_rng(0).normal(size=1000)
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu", 0, 10)
    ...     y = pm.Minibatch(data, batch_size=100)
    ...     likelihood = pm.Normal("y", mu, 1, observed=y, total_size=1000)
    >>> noise = gradient_noise(model, {"mu": 0.0}, random_seed=1)
    >>> bool(6 < noise["mu"].sel(estimator="plain") < 12)  # about N/B (1 − B/N) = 9
    True
    """
    model = checked_model(model)
    rng = a_generator("random_seed", random_seed)
    wanted = positive("largest", largest, usual=1.5)
    if positive_int("batches", batches, usual=1024) < 4 * _ROUNDS:
        raise ValueError(f"batches must be at least {4 * _ROUNDS}, got {batches}.")
    if from_draws := _is_result(point):
        values = draws_of(point, model, group="posterior", limit=None).values
    else:
        values = point_of("point", point, model)
    anchor_values = None if centre is None else point_of("centre", centre, model)
    density = density_of(
        model, backend=backend, temperature=temperature, batch_size=batch_size, batch_dim=batch_dim
    )
    if not density.batch_size:
        raise ValueError(
            "The model has no pm.Minibatch, so that its gradients are exact and there is no noise "
            "to measure. Pass batch_size= and batch_dim= for the noise of batches of that dim."
        )
    phi = density.positions(values)
    anchor = None if anchor_values is None else density.positions(anchor_values)[0]
    if from_draws:
        standard = Standard.of(phi)
        if len(phi) < DRAWS_A_DIMENSION * density.dimension <= DRAWS_A_DIMENSION * LARGEST_DENSE:
            warnings.warn(
                f"The result has {len(phi)} draws, too few for the covariance of "
                f"{density.dimension} parameters. The largest variance is that of single "
                "coordinates, and batches for it may be too many or too few. Pass a result with "
                f"{DRAWS_A_DIMENSION * density.dimension} draws, or a point.",
                UserWarning,
                stacklevel=2,
            )
        kept = np.linspace(0, len(phi) - 1, _ROUNDS + 2).round().astype(int)
        places = phi[kept[1:-1]]
        anchor = standard.centre if anchor is None else anchor
    else:
        standard = Standard(phi[0], _curvature_root(density, phi[0]))
        places = np.repeat(phi, _ROUNDS, axis=0)
        if anchor is None:
            anchor = phi[0]
            places = places + rng.standard_normal(places.shape) @ standard.root.T
    variances, top, freedom = _variances(density, places, anchor, standard, batches, rng)
    return _dataset(density, model, variances, top, wanted, freedom)


def _is_result(point: Any) -> bool:
    """Whether it is a result, not a single point."""
    if not isinstance(point, xr.DataTree | xr.Dataset | Mapping):
        raise TypeError(
            "point must be a result of pm.sample or a dict of a value for each variable, got "
            f"{type(point).__name__}."
        )
    if isinstance(point, xr.DataTree) and point.children:
        return True
    return isinstance(point, xr.DataTree | xr.Dataset) and "draw" in point.dims


def _curvature_root(density: ModelDensity, phi: np.ndarray) -> np.ndarray:
    """L with LL' = |H|⁻¹ at a position, shape (d, d)."""
    d = len(phi)
    if d > LARGEST_DENSE:
        raise NotImplementedError(
            f"The curvature at a point is computed up to {LARGEST_DENSE} dimensions, and the "
            f"model has {d}. Pass a result of pm.sample as point, whose draws give the scale."
        )
    density.gradients(phi[None])  # refuses a point at which they are not finite
    return inverse_root(newton(density.set_rows(0), phi, None, most_steps=0).hessian)


def _variances(
    density: ModelDensity,
    places: np.ndarray,
    anchor: np.ndarray,
    standard: Standard,
    batches: int,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray, int]:
    """Return variances of ĝ, (2, d), those of the noisiest directions, and degrees of freedom."""
    d, root = density.dimension, standard.root
    each = int(np.clip(_LARGEST_ARRAY // d, 4, batches // len(places)))
    samples, squares = [], np.zeros((2, d))
    for x in places:
        # Batches are consecutive rows of one order: of several orders, their mean is exact
        density.shuffle(rng)
        gradients = density.batch_gradients(np.broadcast_to(x, (each, d)), anchor, rng)
        noise = gradients - gradients.mean(axis=1, keepdims=True)
        squares += np.sum(noise**2, axis=1)
        if root.ndim == 2:
            halves = gradients[:, ::2], gradients[:, 1::2]
            samples.append([half - half.mean(axis=1, keepdims=True) for half in halves])
    freedom = len(places) * (each - 1)
    variances = sds_of(root) ** 2 * squares / freedom
    if root.ndim == 1:
        return variances, variances.max(axis=1), freedom
    top = np.empty(2)
    for i in range(2):
        # Axes from every other batch, variances from the rest: along axes chosen to fit them
        # they would be too large
        one, rest = (np.concatenate([x[k][i] for x in samples]) @ root for k in range(2))
        _, axes = np.linalg.eigh(one.T @ one)
        top[i] = np.sum((rest @ axes) ** 2, axis=0).max() / (len(rest) - len(places))
    return variances, top, freedom


def _dataset(
    density: ModelDensity,
    model: Model,
    variances: np.ndarray,
    top: np.ndarray,
    wanted: float,
    freedom: int,
) -> xr.Dataset:
    split = [density.split(row) for row in variances]
    variables: dict[str, Any] = {}
    coords: dict[str, Any] = {}
    for name, shape in density.shapes.items():
        dims, labels = dims_of(model, name, shape)
        variables[name] = (("estimator", *dims), np.stack([parts[name] for parts in split]))
        coords.update(labels)
    size, rows = density.batch_size, density.rows
    # Batches of an update share no rows: they have less noise than independent ones
    beyond = [max(t - wanted, 0.0) for t in top]
    k = [math.ceil((wanted + x) / (wanted + x * size / rows) - 1e-9) for x in beyond]
    variables["largest_variance"] = ("estimator", top)
    variables["suggested_batches"] = ("estimator", k)
    variables["suggested_batch_size"] = ("estimator", [min(x * size, rows) for x in k])
    return xr.Dataset(variables, coords={"estimator": _ESTIMATORS, **coords}).assign_attrs(
        batch_size=size,
        rows=rows,
        gradient=_ESTIMATORS[int(top[1] < top[0] / 2)],
        relative_error=math.hypot(
            math.sqrt(2 / freedom), _OF_A_PERMUTATION * math.sqrt(size / rows / _ROUNDS)
        ),
    )

"""Whether a Gaussian is near the posterior of a model whose units can be exchanged."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pymc_sgmcmc.model.symmetry import has_permutable_units
from pymc_sgmcmc.tuning.many_parameters import Stiffness
from pymc_sgmcmc.tuning.surface import NoGaussianError, Surface

__all__ = ["has_modes_by_permutation", "is_below", "refuse_stiff"]

# Largest curvature in units of independent normals, of which it would be 1: of factorisations it
# is met near 20, of nets above 1,000. At it the usual step size is no longer stable
_STIFF = 100.0
_POINTS, _LEAST_POINTS, _BATCHES, _MOST_BATCHES = 8, 3, 8, 64


def has_modes_by_permutation(
    surface: Surface, split: Callable[[np.ndarray], list[np.ndarray]], rng: np.random.Generator
) -> bool:
    """Return whether the gradient is the same with some units exchanged, as of a net.

    Parameters
    ----------
    surface : Surface
        The potential.
    split : callable
        Makes blocks, one for each variable, of a position of shape (d,).
    rng : numpy.random.Generator
        The chain's; its numbers stay what they are.
    """
    [rng] = rng.spawn(1)
    somewhere = split(rng.standard_normal(surface.dimension))
    rows = surface.draw_rows(rng, 1)
    return has_permutable_units(lambda x: surface.batch_gradient(x[None], rows)[0], somewhere)


def refuse_stiff(
    surface: Surface, centre: np.ndarray, sd: np.ndarray, rng: np.random.Generator
) -> None:
    """Raise where the law is far from the independent normals that were fitted.

    Parameters
    ----------
    surface : Surface
        The potential.
    centre, sd : ndarray
        Of the normals, shape (d,).
    rng : numpy.random.Generator
        The chain's; its numbers stay what they are.

    Raises
    ------
    NoGaussianError
        If the curvature is far larger at most points than the normals have it, or if some of
        them have no width.
    """
    [rng], seen = rng.spawn(1), []
    batches, points = 1, _POINTS
    if surface.batch_size:
        # Few batches say little of coordinates that few rows touch
        wanted = min(len(centre) // surface.batch_size, surface.n_blocks)
        batches = int(np.clip(wanted, _BATCHES, _MOST_BATCHES))
        points = max(_LEAST_POINTS, _POINTS * _BATCHES // batches)
    stiffness = Stiffness(surface, rng, batches)
    for _ in range(points):
        somewhere = centre + sd * rng.standard_normal(len(centre))
        seen.append(stiffness.at(somewhere, sd))
    # A fit that has run away ends in widths that are lost beside the centre
    if np.median(seen) > _STIFF or np.any(centre + sd == centre):
        raise NoGaussianError


def is_below(surface: Surface, phi: np.ndarray, centre: np.ndarray, root: np.ndarray) -> bool:
    """Return whether a chain has come below the centre of the normals it began at.

    Of normals that are right all draws lie above their mean, with d parameters by about d / 2. A
    chain that is below has left a place that is no mode: there the fit had stopped on its way.

    Parameters
    ----------
    surface : Surface
        The potential.
    phi : ndarray
        The chain's position, shape (d,).
    centre, root : ndarray
        Of the fit; of a whole L this is not asked, it has found its mode.
    """
    if root.ndim == 2:
        return False
    there, at_centre = surface.full(np.stack([phi, centre]))[0]
    return bool(there < at_centre)

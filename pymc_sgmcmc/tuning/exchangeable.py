"""Which models have exchangeable units, and whether normals are near the posterior of one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pymc_sgmcmc.model.symmetry import has_permutable_units
from pymc_sgmcmc.tuning.curvature import Stiffness
from pymc_sgmcmc.tuning.passes import PAIRS
from pymc_sgmcmc.tuning.surface import NoGaussianError, Surface

# Largest curvature in units of independent normals, whose own is 1: factorisations have about 20,
# neural networks over 1,000. Beyond it the usual step size is unstable
_STIFF = 100.0

# Places at which it is measured, fewer where more batches than usual are averaged at each
_POINTS, _LEAST_POINTS, _MOST_BATCHES = 8, 3, 64


def has_modes_by_permutation(
    surface: Surface, split: Callable[[np.ndarray], list[np.ndarray]], rng: np.random.Generator
) -> bool:
    """Return whether the gradient allows exchange of units, as a neural network's does.

    The chain's own draws stay the same; ``split`` makes a position's blocks, one for each variable.
    """
    [rng] = rng.spawn(1)
    somewhere, rows = split(rng.standard_normal(surface.dimension)), surface.draw_rows(rng, 1)
    of_all = (lambda x: surface.full(x[None])[1][0]) if surface.batch_size else None
    return has_permutable_units(
        lambda x: surface.batch_gradient(x[None], rows)[0], somewhere, of_all
    )


def refuse_stiff(
    surface: Surface, centre: np.ndarray, root: np.ndarray, rng: np.random.Generator
) -> None:
    """Raise NoGaussianError if the density is far from fitted normals, centre and sd, shape (d,).

    It is if most points have far more curvature than the normals, or if some normal has no width. A
    full L has been checked by its own search.
    """
    if root.ndim == 2:
        return
    [rng], batches, points = rng.spawn(1), 1, _POINTS
    if surface.batch_size:
        # Few batches hardly inform coordinates that few rows touch
        wanted = min(len(centre) // surface.batch_size, surface.n_blocks)
        batches = int(np.clip(wanted, PAIRS, _MOST_BATCHES))
        points = max(_LEAST_POINTS, _POINTS * PAIRS // batches)
    stiffness = Stiffness(surface, rng, batches)
    curvatures = [
        stiffness.at(centre + root * rng.standard_normal(len(centre)), root) for _ in range(points)
    ]
    # A diverged fit has widths that vanish beside the centre
    if np.median(curvatures) > _STIFF or np.any(centre + root == centre):
        raise NoGaussianError

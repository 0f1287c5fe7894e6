"""Part of step 3 of tuning: small blocks of elements of several variables that share an index."""

from __future__ import annotations

import copy

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial

import numpy as np

from pymc_sgmcmc.kernel.pair_sums import PairSums
from pymc_sgmcmc.kernel.potential import Potential
from pymc_sgmcmc.kernel.ravel import Ravel
from pymc_sgmcmc.kernel.whitening import InShear, Shear
from pymc_sgmcmc.model.recognise import LARGEST_DENSE
from pymc_sgmcmc.tuning.conditional import Mapped
from pymc_sgmcmc.tuning.curvature import difference_step, mean_gradient_change, rounding
from pymc_sgmcmc.tuning.failure import named_step
from pymc_sgmcmc.tuning.normal_fit import NARROW, gaussian_of_many
from pymc_sgmcmc.tuning.remembered import Remembered
from pymc_sgmcmc.tuning.surface import (
    CLEAR,
    MOST_OF_MANY,
    Flat,
    Points,
    Rng,
    Rows,
    Surface,
    antithetic,
)

# Least length of an index, and most elements of a block
_LEAST_LENGTH, _LARGEST_BLOCK = 17, 8

# Patterns of random signs, each at a pair of opposite positions
_PATTERNS = 4

# Partial correlation that diagonal whitening may leave in most blocks
_LEFT = 0.3

# Least eigenvalue of a block
_LEAST = 1e-4


class InBlocks(Mapped):
    """A surface in coordinates x in which elements that share an index are independent.

    φ = Cx with C unit lower triangular in each block, given by ``shear`` and ``below``; ``sd`` are
    x's widths, ``alone`` φ's conditional sds, and ``mixed`` the elements of blocks, shape (d,).
    """

    def __init__(
        self, surface: Surface, shear: Shear, below: Sequence[np.ndarray], sd: Flat
    ) -> None:
        super().__init__(surface)
        self.shear, self.below, self.sd, self.alone = shear, list(below), sd.copy(), sd.copy()
        self.mixed = np.zeros(len(sd), dtype=bool)
        self._ravel = Ravel(surface.shapes)

    def whole(self, points: Points) -> Points:
        """Return φ = Cx, shape (P, d)."""
        x = self._ravel.split(points)
        return _joined(self.shear(x, x, self.below))

    def pulled(self, gradient: Points) -> Points:
        """Return C'g, shape (P, d)."""
        g = self._ravel.split(gradient)
        return _joined(self.shear(g, g, self.below, transposed=True))

    @cached_property
    def remembered(self) -> Remembered | None:
        """The views of a mean over places, each in blocks; None of another surface."""
        if not isinstance(mean := self._surface, Remembered):
            return None
        views = [InBlocks(view, self.shear, self.below, self.sd) for view in mean.views]
        return Remembered(views, lambda: self.inward(mean.places()))

    @cached_property
    def _summed(self) -> Callable[..., PairSums]:
        """What sums pairs: a mean over places, one compiled call, or NumPy."""
        surface = self._surface
        if self.remembered is not None:
            return self.remembered.pair_sums
        if isinstance(surface, Potential) and not surface.on_disk:
            whitening = InShear(self.shear, self.below, surface.dtype)
            return partial(surface.pair_sums, whitening=whitening)
        return super().pair_sums

    def pair_sums(self, point: Flat, width: Flat, signs: Points, rows: Rows) -> PairSums:
        """Sum gradients at opposite positions."""
        return self._summed(point, width, signs, rows)

    def inward(self, points: Points) -> Points:
        """Return x = C⁻¹φ, shape (P, d)."""
        phi = self._ravel.split(points)
        zeros = [np.zeros(s) for s in self._ravel.shapes]
        return _joined(self.shear.inverse(phi, zeros, self.below))


@named_step("the search for correlated elements of one index")
def in_blocks(surface: Surface, centre: Flat, sd: Flat, rng: Rng) -> InBlocks | None:
    """Return the surface with correlated elements of one index whitened jointly, or None.

    All elements of one vector are moved at once, with random signs s: another's gradient at index i
    changes by :math:`s_i H_i`, beside terms whose signs average out. The generator's own draws stay
    the same.
    """
    if not (candidates := list(_families(surface))):
        return None
    [rng] = rng.spawn(1)
    families, blocks = [], []
    numbers = Ravel(surface.shapes).split(np.arange(len(centre)))
    for family in candidates:
        index = np.array(Shear([family]).columns(numbers, 0))
        whitened = _blocks(surface, centre, sd, index, rng)
        if whitened is not None:
            families.append(family)
            blocks.append((index, *whitened))
    if not families:
        return None
    inside = InBlocks(surface, Shear(families), [below for _, below, *_ in blocks], sd)
    for index, _, widths, alone in blocks:
        inside.mixed[index], inside.sd[index], inside.alone[index] = True, widths, alone
    return inside


def fitted_in_blocks(
    surface: Surface, start: Flat, rng: Rng, known: Flat | None = None, *, patient: bool = False
) -> tuple[Flat, Flat]:
    """Fit independent normals, in blocks where variables share an index; return mean and sds.

    Without blocks a group's pair is fitted far too narrow, and the scale of all groups falls.
    """
    inside, centre = None, start
    if len(start) > LARGEST_DENSE:
        sd = np.full(len(start), NARROW) if known is None else known
        inside = in_blocks(surface, start, sd, rng)
    if inside is not None and known is None:
        # The blocks at a start may differ from those in the bulk, or not exist there
        ahead = copy.deepcopy(rng)
        x, sd = gaussian_of_many(inside, inside.inward(start[None])[0], ahead, patient=patient)
        centre = inside.whole(x[None])[0]
        inside = in_blocks(surface, centre, np.where(inside.mixed, inside.alone, sd), rng)
    if inside is None:
        return gaussian_of_many(surface, start, rng, known, patient=patient)
    x = inside.inward(centre[None])[0]
    x, sd = gaussian_of_many(inside, x, rng, inside.sd, trusted=inside.mixed)
    return inside.whole(x[None])[0], np.where(inside.mixed, inside.alone, sd)


def _families(surface: Surface) -> Iterator[tuple[tuple[int, int, int], ...]]:
    """Yield the variables that have an index of one length, as a :class:`Shear` takes them."""
    # Coordinates of bounded width are not normal, and curvatures at one place describe no block
    normal = ~surface.circular & np.isinf(surface.widest)
    free = [x.all() for x in Ravel(surface.shapes).split(normal)]
    lengths = dict.fromkeys(n for shape in surface.shapes for n in shape if n >= _LEAST_LENGTH)
    taken: set[int] = set()

    def next_of(n: int) -> tuple[tuple[int, int, int], ...]:
        family: list[tuple[int, int, int]] = []
        for k, shape in enumerate(surface.shapes):
            if k in taken or not free[k] or n not in shape or 0 in shape or len(shape) > 2:
                continue
            count = 0 if len(shape) == 1 else int(np.prod(shape)) // n
            if sum(max(1, c) for *_, c in family) + max(1, count) <= _LARGEST_BLOCK:
                family.append((k, -2 if count and shape[0] == n else -1, count))
        return tuple(family)

    for n in lengths:
        # More than a block holds make up several families
        while (family := next_of(n)) and sum(max(1, count) for *_, count in family) > 1:
            taken |= {k for k, *_ in family}
            yield family


def _blocks(
    surface: Surface, centre: Flat, sd: Flat, index: np.ndarray, rng: Rng
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Return C below the diagonal and widths with and without it, None if they are the same."""
    mean = _significant_curvature(surface, centre, sd, index, rng)
    if mean is None:
        return None
    size = len(index)
    curvature = np.diagonal(mean, axis1=1, axis2=2)
    widths = np.where(curvature > 0, curvature, 1.0) ** -0.5
    partial = mean * widths[:, :, None] * widths[:, None]
    partial[:, range(size), range(size)] = 1
    # No mean curvature is negative: it is that of other indices
    least = np.linalg.eigvalsh(partial)[:, 0]
    partial[(curvature < 0).any(axis=1) | (least < -rounding(surface))] = np.eye(size)
    below = np.tril_indices(size, -1)
    if np.quantile(np.abs(partial[:, *below]), MOST_OF_MANY, axis=0).max() < _LEFT:
        return None
    w, v = np.linalg.eigh(partial)
    w = np.maximum(w, max(_LEAST, rounding(surface)))
    root = np.linalg.cholesky((v / w[:, None]) @ v.swapaxes(1, 2))
    diagonal = np.diagonal(root, axis1=1, axis2=2)
    own = widths.T * sd[index]
    unit = root / diagonal[:, None] * own.T[:, :, None] / own.T[:, None]
    return unit[:, *below].T.copy(), own * diagonal.T, own


def _significant_curvature(
    surface: Surface, centre: Flat, sd: Flat, index: np.ndarray, rng: Rng
) -> np.ndarray | None:
    """Return the mean Hessians of all blocks, (n, size, size), in units of the sds, if finite.

    Elements that differ from 0 by chance are 0.
    """
    size, n = index.shape
    step, seen = difference_step(surface), np.zeros((_PATTERNS, n, size, size))
    for k in range(_PATTERNS):
        points = centre + sd * antithetic(rng, 1, len(centre))
        change, signs = mean_gradient_change(surface, points), rng.choice([-1.0, 1.0], size=n)
        for p, own in enumerate(index):
            move = np.zeros(len(centre))
            move[own] = step * sd[own] * signs
            seen[k, :, p] = ((change(move) / step * sd)[index] * signs).T
    seen = (seen + seen.swapaxes(2, 3)) / 2
    if not np.all(np.isfinite(seen)):
        return None
    mean, error = seen.mean(axis=0), seen.std(axis=0, ddof=1) / _PATTERNS**0.5
    mean[np.abs(mean) < CLEAR * error] = 0
    return mean


def _joined(parts: Sequence[np.ndarray]) -> Points:
    """Return the flat vectors of which these are the parts, shape (P, d)."""
    return np.concatenate([x.reshape((len(x), -1)) for x in parts], axis=1)

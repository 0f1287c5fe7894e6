"""Step 4 of tuning: the variance of a batch's gradient in whitened coordinates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from pymc_sgmcmc.model.batch_schemes import BATCH_SCHEMES
from pymc_sgmcmc.tuning.directions import Turn
from pymc_sgmcmc.tuning.failure import NEARER, named_step
from pymc_sgmcmc.tuning.passes import (
    FEW_PASSES,
    PAIRS,
    Draw,
    Passes,
    are_few,
    batches_to_measure,
    random_signs,
)
from pymc_sgmcmc.tuning.remembered import Remembered
from pymc_sgmcmc.tuning.shared_index import InBlocks
from pymc_sgmcmc.tuning.surface import (
    MOST_OF_MANY,
    TINY,
    Flat,
    Map,
    Points,
    Rng,
    Root,
    Surface,
    TuningError,
    gradients_of_batches,
    parts_of,
)

# Positions of the bulk, least batches at all of them, for each coordinate of a dense L, and most
# numbers in the gradients of those at one
_POINTS, _LEAST_BATCHES, _BATCHES_OF_EACH, _LARGEST = 16, 512, 4, 2**24

# The noise of a direction is given as a multiple of the noise of the coordinate that it replaces.
# Where the coordinate has less than 1 % of the direction's noise, as an intercept that data depend
# on only through its effects, the multiple is unreliable and the noise itself is kept
_OWN = 0.01

_NOT_FINITE = (
    "the measurement of the gradient noise failed: gradients are not finite all around the "
    f"posterior's centre, which may have been fitted far from the data. {NEARER}"
)


@dataclass(frozen=True)
class GradientNoise:
    """Variance of one batch's gradient in whitened coordinates."""

    plain: Flat  # of the gradient as it is, shape (d,)
    controlled: Flat  # with the centre as the anchor, shape (d,)
    rotation: Root | None = None  # axes of the noise, in which both are measured, (d, d)
    # Both along the sum of coordinates where they are largest, 0 where one coordinate's are
    together: tuple[float, float] = (0.0, 0.0)

    def at_least(self, variance: float | Flat) -> GradientNoise:
        """Return noise whose anchored variances, or for a number the largest, are no smaller."""
        if isinstance(variance, np.ndarray):
            return replace(self, controlled=np.maximum(self.controlled, variance))
        largest = float(self.controlled.max(initial=0.0))
        if variance <= largest:
            return self
        return replace(self, controlled=self.controlled * (variance / max(largest, TINY)))

    def turned(self, plain: TurnedNoise, controlled: TurnedNoise) -> GradientNoise:
        """Return the noise of turned gradients."""
        return replace(self, plain=plain(self.plain), controlled=controlled(self.controlled))


@dataclass(frozen=True)
class TurnedNoise:
    """A turn's effect on variances v of gradients, times v + plus, shape (d,); by default none."""

    times: Flat | float = 1.0
    plus: Flat | float = 0.0

    def __call__(self, variance: Flat) -> Flat:
        """Return the variances after the turn, shape (d,)."""
        return variance * self.times + self.plus


@named_step("the measurement of the gradient noise")
def measured_noise(
    surface: Surface,
    centre: Flat,
    root: Root,
    rng: Rng,
    spread: Root | None = None,
    *,
    rotated: bool = True,
    many: bool = False,
) -> GradientNoise:
    """Measure the noise at points of the bulk, with root L of shape (d, d) or (d,).

    ``spread`` is L of the bulk if that differs; ``rotated`` lets a dense L take the axes of the
    noise; ``many`` says that a batch may touch few coordinates.
    """
    bulk, least = root if spread is None else spread, _batches(root)
    in_pass = are_few(surface, least)

    def samples(bulk: Root) -> Iterator[tuple[Points, Points]]:
        batches, draw = batches_to_measure(surface, rng, least)
        # A row that is drawn once is seen at a single place, not as far off as chance has it
        places = _places(surface, centre, bulk, rng, signs=in_pass)
        return _samples(surface, centre, places, draw, batches)

    if many and root.ndim == bulk.ndim == 1 and _remembered(surface) is None:
        plain, controlled = _variances_of_pairs(surface, centre, bulk, rng)
        return GradientNoise(root**2 * plain, root**2 * controlled)
    if root.ndim == 1 or not rotated:
        return GradientNoise(*_variances(samples(bulk), lambda g: _whitened(g, root)))
    covariance = np.zeros(root.shape)
    for _, g in samples(bulk):
        noise = (g - g.mean(axis=0)) @ root
        covariance += noise.T @ noise / (len(noise) - 1) / _POINTS
    axes = _axes(covariance, surface.circular)
    # Fresh batches: along axes fitted to the old ones, those would show too little
    bulk = root @ axes if in_pass and bulk is root else bulk
    return GradientNoise(*_variances(samples(bulk), lambda g: g @ root @ axes), rotation=axes)


def turned_noise(
    surface: Surface, centre: Flat, root: Root, turn: Turn, rng: Rng
) -> tuple[TurnedNoise, TurnedNoise]:
    """Return a turn's effects on the variances of one batch's plain and anchored gradients.

    Only the coordinates that become directions change.
    """
    before, after = np.zeros((2, len(centre))), np.zeros((2, len(centre)))
    count = 0
    places = _places(surface, centre, root, rng)
    for both in _samples(surface, centre, places, partial(surface.draw_rows, rng), _LEAST_BATCHES):
        count += len(both[0]) - 1
        for k, g in enumerate(both):
            noise = (g - g.mean(axis=0)) * root
            before[k] += np.sum(noise**2, axis=0)
            after[k] += np.sum(turn.pull_back(noise) ** 2, axis=0)
    # The others hardly change, and where few rows touch them estimates are unreliable
    own = np.isin(np.arange(len(centre)), turn.coordinates)
    alike = own & (before > _OWN * after)
    times = np.divide(after, before, where=alike, out=np.where(own, 0.0, np.ones_like(after)))
    plus = np.where(own & ~alike, after / max(count, 1), 0.0)
    return TurnedNoise(times[0], plus[0]), TurnedNoise(times[1], plus[1])


@named_step("the measurement of the gradient noise")
def noise_along_burn_in(
    surface: Surface, centre: Flat, root: Root, psi: Points, phi: Points, rng: Rng
) -> Flat:
    """Return an anchored batch's variance along the chain in each whitened coordinate, shape (d,).

    Noise far out heats more and counts with the squared distance, as E vψ² / E ψ², which is v where
    the noise is constant. ``root`` includes the rotation to the axes of the noise.
    """
    heat, distance = np.zeros(len(centre)), np.zeros(len(centre))
    least = _batches(root)
    batches, draw = batches_to_measure(surface, rng, least)
    # A pass is made along all positions; a single one has a share of 1 / _POINTS of ``batches``
    batches = max(least, _POINTS * -(-batches // len(phi)))
    for x, square in zip(phi, psi**2, strict=True):
        # None where the gradients are not finite
        for _, g in _samples(surface, centre, [(surface, surface, x)], draw, batches):
            heat += _variance(_whitened(g, root)) * square
            distance += square
    return heat / np.maximum(distance, TINY)


def most_of_each(variance: Flat, sizes: Sequence[int]) -> float:
    """Return the largest high quantile of any variable's variances.

    A scale may be one of thousands of coordinates, and the one of interest.
    """
    parts = parts_of(variance, sizes)
    return float(max(np.quantile(part, MOST_OF_MANY) for part in parts if part.size))


# ---------------------------------------------------------------- batches at single positions


def _batches(root: Root) -> int:
    """Return the batches of a measurement with root L, whose matrix needs more."""
    return _LEAST_BATCHES if root.ndim == 1 else max(_LEAST_BATCHES, _BATCHES_OF_EACH * len(root))


def _axes(covariance: Root, circular: Flat) -> Root:
    """Return eigenvectors, shape (d, d), with circular coordinates unchanged."""
    if not circular.any():
        return np.asarray(np.linalg.eigh(covariance)[1])
    axes, line = np.eye(len(circular)), np.ix_(~circular, ~circular)
    if not circular.all():
        axes[line] = np.linalg.eigh(covariance[line])[1]
    return axes


def _places(
    surface: Surface, centre: Flat, spread: Root, rng: Rng, *, signs: bool = False
) -> Iterator[tuple[Surface, Surface, Flat]]:
    """Yield positions of the bulk, with the surface there and that of an anchor at the centre.

    With ``signs`` each whitened coordinate is one sd from the centre.
    """
    mean = _remembered(surface)
    visited = () if mean is None else mean.places()
    moves = rng.standard_normal((_POINTS, len(centre)))
    for k, e in enumerate(np.sign(moves) if signs else moves):
        if mean is not None:
            # The chain's position at those values, as the bulk moves with the other variables
            here = k % len(mean.views)
            yield mean.views[here], mean.views[-1], visited[here]
        else:
            yield surface, surface, centre + (spread @ e if spread.ndim == 2 else spread * e)


def _remembered(surface: Surface) -> Remembered | None:
    """Return the mean over places that a surface is, as it is or in blocks; None of another one."""
    if isinstance(surface, InBlocks):
        return surface.remembered
    return surface if isinstance(surface, Remembered) else None


def _samples(
    surface: Surface,
    centre: Flat,
    places: Iterable[tuple[Surface, Surface, Flat]],
    draw: Draw,
    batches: int,
) -> Iterator[tuple[Points, Points]]:
    """Yield, for each place, gradients of batches and their differences from the centre's."""
    each = int(np.clip(_LARGEST // len(centre), 2, -(-batches // _POINTS)))
    for here, anchor, x in places:
        rows = draw(each)
        if here is anchor:
            at_x, at_centre = gradients_of_batches(here, np.stack([x, centre]), rows)
        else:
            [at_x] = gradients_of_batches(here, x[None], rows)
            [at_centre] = gradients_of_batches(anchor, centre[None], rows)
        finite = np.all(np.isfinite(at_x) & np.isfinite(at_centre), axis=1)
        if finite.sum() >= 2:
            yield at_x[finite], (at_x - at_centre)[finite]


def _whitened(gradients: Points, root: Root) -> Points:
    """Return L'g, shape (P, d)."""
    return gradients * root if root.ndim == 1 else gradients @ root


def _variance(gradients: Points) -> Flat:
    """Return the variance of gradients of independent batches at one position, shape (d,)."""
    return np.asarray(np.var(gradients, axis=0, ddof=1))


def _variances(samples: Iterable[tuple[Points, Points]], whitened: Map) -> tuple[Flat, Flat]:
    """Return the mean variances of plain and of anchored gradients."""
    of_each = [[_variance(whitened(g)) for g in both] for both in samples]
    if not of_each:
        raise TuningError(_NOT_FINITE)
    plain, controlled = np.mean(of_each, axis=0)
    return plain, controlled


# ---------------------------------------------------------------- passes over the data


def _variances_of_pairs(surface: Surface, centre: Flat, width: Flat, rng: Rng) -> tuple[Flat, Flat]:
    """Return one batch's plain and anchored variances for φ, (d,), averaged over some passes.

    Between opposite positions, two sds apart in each coordinate, an anchored gradient has four
    times its variance at one sd.
    """
    d, passes = len(centre), Passes(surface, rng)
    count, sums = 0, np.zeros((3, d))
    for _ in range(_steps(surface, passes)):
        # The same signs in a step: between others the gradient of all rows differs, too
        signs = np.repeat(random_signs(rng, d)[:1], PAIRS, axis=0)
        of_step = surface.pair_sums(centre, width, signs, passes.draw())
        if (n := of_step.count) < 2:
            continue
        count += n
        change = np.maximum(of_step.change_squared - of_step.change**2 / n, 0) * n / (n - 1)
        sums += of_step.middle, of_step.middle_squared, change
    if count < 2:
        raise TuningError(_NOT_FINITE)
    middle, middle_squared, change = sums / count
    # A batch of all rows has no noise
    ratio = _ratio(surface, passes.batches) or 1.0
    plain = np.maximum(middle_squared - middle**2, 0) * count / (count - 1)
    return plain / ratio, _apart(passes) * change / 4 / ratio


class NoiseOnTheWay:
    """The variance of a gradient estimate, averaged over the positions that a chain visits.

    ``anchor`` is φ̄, shape (d,), or None for plain gradients. The estimate is of ``batches``
    neighbouring batches, as in an update, or of more where the data are many: where one update
    pulled the effects of neighbouring rows, these gradients differ from other batches' alike, and
    their mean is noisier than if independent.
    """

    def __init__(self, surface: Surface, anchor: Flat | None, rng: Rng, batches: int = 1) -> None:
        self._surface, self._anchor = surface, anchor
        one = Passes(surface, rng)
        self._passes = Passes(surface, rng, max(batches, one.batches))
        self.positions = _steps(surface, one)
        """Number of positions that make up some passes over the data."""
        self.forget()

    def forget(self) -> None:
        """Start the average anew."""
        self._count, self._sum = 0, np.zeros(self._surface.dimension)

    def add(self, phi: Flat) -> None:
        """Add a measurement at a position, shape (d,)."""
        if isinstance(self._surface, InBlocks):
            phi = self._surface.inward(phi[None])[0]
        other = phi if self._anchor is None else self._anchor
        # The pair of positions is the chain's position and the anchor
        alike = np.ones((PAIRS, len(phi)), dtype=np.int8)
        sums = self._surface.pair_sums(
            (phi + other) / 2, (phi - other) / 2, alike, self._passes.draw()
        )
        n = sums.count
        if n < 2:
            return
        total, squares = sums.change, sums.change_squared
        if self._anchor is None:
            total, squares = sums.middle, sums.middle_squared
        self._sum += np.maximum(squares - total**2 / n, 0) / (n - 1)
        self._count += 1

    def variance(self) -> Flat | None:
        """Return one batch's variance for φ (in blocks for C⁻¹φ), (d,), None if it is not known."""
        ratio = _ratio(self._surface, self._passes.batches)
        # Batches that are all rows, each once, show nothing of others
        if not self._count or not ratio:
            return None
        found = _apart(self._passes) * self._sum / self._count / ratio
        return found if np.all(np.isfinite(found)) else None


def _steps(surface: Surface, passes: Passes) -> int:
    return max(_LEAST_BATCHES, FEW_PASSES * surface.n_blocks) // (PAIRS * passes.batches)


def _apart(passes: Passes) -> float:
    """Return the factor for batches of one pass: they share no rows, and differ more than others.

    Where a pass is a single pair, its batches are independent of the next pair's.
    """
    return 1 - 1 / max(passes.pairs, PAIRS) if passes.pairs > 1 else 1.0


def _ratio(surface: Surface, batches: int) -> float:
    """Return the variance of the mean of neighbouring batches over that of one block of rows."""
    scheme = BATCH_SCHEMES["shuffled"]
    return max(scheme.variance_ratio(n, size, batches) for n, size in surface.sizes)

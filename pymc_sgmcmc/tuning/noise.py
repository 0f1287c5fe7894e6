"""Step 4 of tuning: the variance of gradient estimates, and how many batches to average."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from pymc_sgmcmc.tuning.failure import NEARER, named_step
from pymc_sgmcmc.tuning.noise_of_many import noise_of_pairs
from pymc_sgmcmc.tuning.remembered import Remembered
from pymc_sgmcmc.tuning.surface import Surface, TuningError
from pymc_sgmcmc.tuning.turn import Turn

__all__ = ["GradientNoise", "TurnedNoise", "measured_noise", "met_noise", "turned_noise"]

_POINTS = 16
_LEAST_BATCHES = 512
_LARGEST = 2**24

# Least variance of a coordinate, over that of the direction replacing it, for which a ratio is
# formed: less is unreliable, as for an intercept that data depend on only through its effects
_OWN = 0.01

_NOT_FINITE = (
    "the measurement of the gradient noise met non-finite gradients all around the "
    f"centre, as where the fit before it has run away. {NEARER}"
)


@dataclass(frozen=True)
class GradientNoise:
    """Variance of one batch's gradient in whitened coordinates."""

    plain: np.ndarray  # of the gradient as it is, shape (d,)
    controlled: np.ndarray  # with the centre as the anchor, shape (d,)
    rotation: np.ndarray | None  # axes of the noise, in which both are measured, shape (d, d)

    def at_least(self, met: float) -> GradientNoise:
        """Return noise whose largest anchored variance is at least ``met``."""
        largest = float(self.controlled.max(initial=0.0))
        if met <= largest:
            return self
        return replace(self, controlled=self.controlled * (met / max(largest, 1e-300)))

    def turned(self, plain: TurnedNoise, controlled: TurnedNoise) -> GradientNoise:
        """Return the noise of turned gradients."""
        return replace(self, plain=plain(self.plain), controlled=controlled(self.controlled))


@dataclass(frozen=True)
class TurnedNoise:
    """A turn's effect on variances v of gradients: times v + plus, shape (d,)."""

    times: np.ndarray
    plus: np.ndarray

    @classmethod
    def none(cls, dimension: int) -> TurnedNoise:
        """Return the effect of no turn."""
        return cls(np.ones(dimension), np.zeros(dimension))

    def __call__(self, variance: np.ndarray) -> np.ndarray:
        """Return the variances after the turn, shape (d,)."""
        after: np.ndarray = variance * self.times + self.plus
        return after


@named_step("the measurement of the gradient noise")
def measured_noise(
    surface: Surface,
    centre: np.ndarray,
    root: np.ndarray,
    rng: np.random.Generator,
    spread: np.ndarray | None = None,
    *,
    rotated: bool = True,
    many: bool = False,
) -> GradientNoise:
    """Measure the noise at points of the bulk, with root L of shape (d, d) or (d,).

    ``spread`` is L of the bulk if that differs; ``rotated`` lets a dense L take the axes of the
    noise; ``many`` says that a batch may touch few coordinates.
    """
    d = len(centre)
    if root.ndim == 1:
        bulk = root if spread is None else spread
        if many and bulk.ndim == 1 and not isinstance(surface, Remembered):
            found = noise_of_pairs(surface, centre, bulk, rng)
            if found is None:
                raise TuningError(_NOT_FINITE)
            plain, controlled = found
            return GradientNoise(root**2 * plain, root**2 * controlled, None)
        plain, controlled = _variances(surface, centre, root, bulk, None, rng, _LEAST_BATCHES)
        return GradientNoise(plain, controlled, None)
    batches = max(_LEAST_BATCHES, 4 * d)
    if not rotated:
        plain, controlled = _variances(surface, centre, root, root, np.eye(d), rng, batches)
        return GradientNoise(plain, controlled, None)
    covariance = np.zeros((d, d))
    places = _places(surface, centre, root, rng)
    for _, controlled_g in _samples(surface, centre, places, rng, batches):
        noise = (controlled_g - controlled_g.mean(axis=0)) @ root
        covariance += noise.T @ noise / (len(noise) - 1) / _POINTS
    rotation = _axes(covariance, surface.circular)
    # Fresh batches: along axes fitted to the old ones, those would show too little
    plain, controlled = _variances(surface, centre, root, root, rotation, rng, batches)
    return GradientNoise(plain, controlled, rotation)


def turned_noise(
    surface: Surface,
    centre: np.ndarray,
    root: np.ndarray,
    turn: Turn,
    rng: np.random.Generator,
) -> tuple[TurnedNoise, TurnedNoise]:
    """Return a turn's effects on the variances of one batch's plain and anchored gradients.

    Only the coordinates that become directions change.
    """
    before, after = np.zeros((2, len(centre))), np.zeros((2, len(centre)))
    count = 0
    places = _places(surface, centre, root, rng)
    for both in _samples(surface, centre, places, rng, _LEAST_BATCHES):
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
    plain, controlled = (TurnedNoise(*both) for both in zip(times, plus, strict=True))
    return plain, controlled


@named_step("the measurement of the gradient noise")
def met_noise(
    surface: Surface,
    centre: np.ndarray,
    root: np.ndarray,
    psi: np.ndarray,
    phi: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:
    """Return an anchored batch's variance along the chain in each whitened coordinate, shape (d,).

    Noise far out heats more and counts with the squared distance, as E vψ² / E ψ², which is v where
    the noise is constant. ``root`` includes the rotation to the axes of the noise.
    """
    batches = _LEAST_BATCHES if root.ndim == 1 else max(_LEAST_BATCHES, 4 * len(centre))
    heat, distance = np.zeros(len(centre)), np.zeros(len(centre))
    for x, square in zip(phi, psi**2, strict=True):
        # None where the gradients are not finite
        for _, g in _samples(surface, centre, [(surface, surface, x)], rng, batches):
            whitened = g * root if root.ndim == 1 else g @ root
            heat += np.var(whitened, axis=0, ddof=1) * square
            distance += square
    return heat / np.maximum(distance, 1e-300)


def _axes(covariance: np.ndarray, circular: np.ndarray) -> np.ndarray:
    """Return eigenvectors, shape (d, d), with circular coordinates unchanged."""
    if not circular.any():
        return np.asarray(np.linalg.eigh(covariance)[1])
    axes, line = np.eye(len(circular)), np.ix_(~circular, ~circular)
    if not circular.all():
        axes[line] = np.linalg.eigh(covariance[line])[1]
    return axes


def _samples(
    surface: Surface,
    centre: np.ndarray,
    places: Iterable[tuple[Surface, Surface, np.ndarray]],
    rng: np.random.Generator,
    batches: int,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield, for each point, gradients of batches and their differences from the centre's."""
    d = len(centre)
    each = int(np.clip(_LARGEST // d, 2, batches // _POINTS))
    for here, anchor, x in places:
        rows = surface.draw_rows(rng, each)
        if here is anchor:
            places = np.repeat([x, centre], each, axis=0)
            both = here.batch_gradient(places, np.tile(rows, (2, 1)))
            at_x, at_centre = both[:each], both[each:]
        else:
            at_x = here.batch_gradient(np.repeat([x], each, axis=0), rows)
            at_centre = anchor.batch_gradient(np.repeat([centre], each, axis=0), rows)
        finite = np.all(np.isfinite(at_x) & np.isfinite(at_centre), axis=1)
        if finite.sum() >= 2:
            yield at_x[finite], (at_x - at_centre)[finite]


def _places(
    surface: Surface, centre: np.ndarray, spread: np.ndarray, rng: np.random.Generator
) -> Iterator[tuple[Surface, Surface, np.ndarray]]:
    """Yield positions of the bulk, with the surface there and that of an anchor at the centre."""
    for k, e in enumerate(rng.standard_normal((_POINTS, len(centre)))):
        if isinstance(surface, Remembered):
            # The chain's position at those values, as the bulk moves with the other variables
            here = k % len(surface.views)
            yield surface.views[here], surface.views[-1], surface.places[here]
        else:
            yield surface, surface, centre + (spread @ e if spread.ndim == 2 else spread * e)


def _variances(
    surface: Surface,
    centre: np.ndarray,
    root: np.ndarray,
    spread: np.ndarray,
    rotation: np.ndarray | None,
    rng: np.random.Generator,
    batches: int,
) -> tuple[np.ndarray, np.ndarray]:
    def whitened(g: np.ndarray) -> np.ndarray:
        return g * root if rotation is None else g @ root @ rotation

    both = [
        (np.var(whitened(p), axis=0, ddof=1), np.var(whitened(c), axis=0, ddof=1))
        for p, c in _samples(surface, centre, _places(surface, centre, spread, rng), rng, batches)
    ]
    if not both:
        raise TuningError(_NOT_FINITE)
    plain, controlled = np.mean(both, axis=0)
    return plain, controlled

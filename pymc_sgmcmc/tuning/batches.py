"""The estimator and the number of batches for which an effective draw costs least."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pymc_sgmcmc.kernel.estimators import SVRG, ControlVariates, GradientChoice, Plain
from pymc_sgmcmc.kernel.options import Options
from pymc_sgmcmc.kernel.policy import Policy
from pymc_sgmcmc.model.batch_schemes import BatchScheme
from pymc_sgmcmc.schedules import thin_of
from pymc_sgmcmc.tuning.bounds import anchored_bound
from pymc_sgmcmc.tuning.noise import GradientNoise
from pymc_sgmcmc.tuning.regimes import NoiseTerms
from pymc_sgmcmc.tuning.surface import Flat, Surface

# The K of an earlier plan is kept if it costs less than 1.6 times the best K: another K has to be
# compiled
_LITTLE = 1.6

# Most batches averaged for a single variable's noise, as all variables pay for them
_ALLOWED = 16


@dataclass(frozen=True)
class Terms:
    """Terms on which estimators are compared."""

    noise: NoiseTerms
    policy: Policy
    unit: float  # scale of the narrowest direction in the chain's coordinates
    surface: Surface
    scheme: BatchScheme
    most_batches: int  # largest K
    remembered: bool  # gradients at an anchor are kept, and cost nothing
    compiled: int | None  # K of an earlier plan, kept where another would be little better

    @property
    def anchored_bound(self) -> float:
        """The largest variance of an anchored estimator that costs nothing."""
        return min(anchored_bound(self.policy), self.noise.bound)

    @property
    def step_size(self) -> float:
        """The step size with exact gradients."""
        return self.policy.step_size * self.noise.factor

    def counts(self, wished: int | str) -> np.ndarray:
        """Return the numbers K to compare."""
        if isinstance(wished, int):
            return np.array([wished])
        # Coarse, so that another centre and other chains mostly use the same compiled function
        blocks = self.surface.n_blocks
        few = [c << k for k in range(30) for c in (2, 3) if c << k < blocks]
        counts = np.unique([*few, 1, max(1, blocks)])
        return counts[counts <= self.most_batches]

    @property
    def unevenness(self) -> float:
        """Relative variance of the sizes of stored blocks, of which the last may be short."""
        if not self.remembered:
            return 0.0
        [(n, size)], blocks = self.surface.sizes, self.surface.n_blocks
        last = n - (blocks - 1) * size
        return blocks * ((blocks - 1) * size**2 + last**2) / n**2 - 1

    def ratios(self, counts: np.ndarray, *, of_blocks: bool) -> np.ndarray:
        """Return variances of means of K batches over that of one, the largest of any minibatch."""
        sizes = [(self.surface.n_blocks, 1)] if of_blocks else self.surface.sizes
        ratio = self.scheme.variance_ratio
        return np.array([max(ratio(n, size, int(k)) for n, size in sizes) for k in counts])


@dataclass(frozen=True)
class _Candidate:
    """An estimator, one batch's variance in each coordinate, (d,), and gradients that it takes."""

    estimator: GradientChoice
    variance: Flat
    together: float  # variance along the noisiest sum of coordinates
    gradients: int

    def best(
        self, counts: np.ndarray, ratios: np.ndarray, terms: Terms
    ) -> tuple[int, float, float]:
        """Return the index of the cheapest K in ``counts``, its cost, and its largest variance.

        Noise above its bound costs time, where it lowers the step size, and accuracy.
        """
        is_plain = isinstance(self.estimator, Plain)
        noise = terms.noise
        bound = noise.bound if is_plain else terms.anchored_bound
        price = self.gradients * (1.0 if is_plain else noise.doubt)
        largest, of_all = (
            max(f(self.variance), self.together) * terms.unit**2 * ratios
            for f in (noise.most_of, noise.most_of_all)
        )
        cost, by_all = (
            price * (counts * np.maximum(v / bound, 1.0) ** 2) for v in (largest, of_all)
        )
        k = int(np.argmin(cost))
        allowed = max(_ALLOWED, counts[np.argmin(by_all)])
        if counts[k] > allowed and counts.min() <= allowed:
            k, cost = int(np.flatnonzero(counts <= allowed)[-1]), by_all
        kept = np.flatnonzero((counts == terms.compiled) & (cost < _LITTLE * cost[k]))
        k = int(kept[0]) if kept.size else k
        return k, float(cost[k]), float(largest[k])


def chosen_estimator(
    options: Options, noise: GradientNoise, terms: Terms
) -> tuple[GradientChoice, int, Flat, float, float]:
    """Return the estimator and K of the cheapest effective draw, its variances and ratio.

    The quieter one wins at equal cost. All rows are used where K batches are much of the data.
    """
    counts = terms.counts(options.batches)
    of_blocks = terms.ratios(counts, of_blocks=terms.remembered)
    of_rows = terms.ratios(counts, of_blocks=False) if terms.remembered else of_blocks
    offers = []
    for candidate in _candidates(options, noise, terms):
        ratios = of_rows if isinstance(candidate.estimator, Plain) else of_blocks
        at, *rank = candidate.best(counts, ratios, terms)
        offers.append((rank, candidate, int(counts[at]), float(ratios[at])))
    _, best, k, ratio = min(offers, key=lambda offer: offer[0])
    every = int(counts[-1])
    free = options.batches == "auto" and not isinstance(best.estimator, SVRG)
    if free and every == terms.surface.n_blocks and 1 < k and k >= terms.noise.all_from * every:
        of_all = float(terms.ratios(counts, of_blocks=False)[-1])
        # Not for rows drawn with replacement, which would leave some out
        if of_all * every < 1 and options.gradient != ControlVariates():
            return Plain(), every, noise.plain * of_all, noise.together[0] * of_all, of_all
    return best.estimator, k, best.variance * ratio, best.together * ratio, ratio


def _candidates(options: Options, noise: GradientNoise, terms: Terms) -> list[_Candidate]:
    """Return the estimators that the user allows."""
    wish = options.gradient
    anchored_cost = 1 if terms.remembered else 2
    controlled = noise.controlled + terms.unevenness / terms.unit**2
    together = noise.together
    candidates = []
    if wish == "auto" or isinstance(wish, Plain):
        candidates.append(_Candidate(Plain(), noise.plain, together[0], 1))
    if wish == "auto" or isinstance(wish, ControlVariates):
        candidates.append(_Candidate(ControlVariates(), controlled, together[1], anchored_cost))
    if isinstance(wish, SVRG):
        # An anchor moves only as a draw begins
        thin = thin_of(options.step_size, options.thin)
        away = _distance_to_anchor(-(-wish.refresh // thin) * thin, terms.step_size)
        candidates.append(_Candidate(wish, away * controlled, away * together[1], anchored_cost))
    return candidates


def _distance_to_anchor(refresh: int, rate: float) -> float:
    """Return the mean squared distance to a past draw, that of a draw to the centre being 1.

    The chain's autocorrelation falls by ``rate`` per update; the mean is over the updates until the
    anchor is refreshed: 0 next to it, 2 once the chain has forgotten it.
    """
    kept = 1 - rate
    return 2 * (1 - (1 - kept**refresh) / (refresh * rate))

"""What is watched over the draws of a chain, and what it says at the end."""

from __future__ import annotations

import math

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pymc.stats.convergence import SamplerWarning, WarningType
from scipy.special import stdtrit

from pymc_sgmcmc.backends.placing import every
from pymc_sgmcmc.kernel.settings import Comparable

# The error of few parts' mean is itself uncertain, and for many coordinates that costs power; parts
# of too few draws are no longer independent. tests/benchmarks/alarms.py measures both
_MOST_PARTS = 80
_LEAST_OF_PART, _LEAST_PARTS = 10, 10
# Elements of ψ of which every draw is watched: sums of all would be as large as 240 draws
MOST_WATCHED = 1024
# Share of updates whose gradient was scaled down: fewer hardly widen what is sampled. At the end of
# a chain of d elements it is at most d^-1/2. Gradients that are shorter by a mean share s act as a
# temperature of 1 + s, which moves a scale that all elements share by up to s (d / 2)^1/2 of its sd
MOST_TAMED = 0.05
# Relative error of a variance that nobody should miss
LARGEST_ERROR = 0.1


@dataclass(eq=False)
class Monitor(Comparable):
    """Configurational temperatures and gradient noise, averaged over a chain.

    In equilibrium the covariance of ψ_i and ∂_i U is 1 for every coordinate; gradient noise
    does not bias it. R-hat sees nothing of a chain that samples a wider law.

    It does not depend on how many draws are to come: a chain that goes on for longer than was
    asked for at first is judged as if that had been asked for.
    """

    # Consecutive parts whose spread gives the errors, at most; an even number. From as many on,
    # each two of them become one
    most_parts: int = _MOST_PARTS
    length: int = _LEAST_OF_PART  # draws of a part
    seen: int = 0  # draws so far
    # Finite draws in each part, and their weights together
    counts: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=int))
    masses: np.ndarray = field(default_factory=lambda: np.zeros(0))
    # Of ψ_i ĝ_i, ψ_i and ĝ_i in the parts, by weight, shape (parts, 3, d), d that of what is
    # watched. The last part may be incomplete
    sums: np.ndarray | None = None
    noise: float = 0.0  # weighted sum of the noise ratios

    @property
    def parts(self) -> int:
        """How many parts have all their draws."""
        return self.seen // self.length

    def add(self, x: np.ndarray, g: np.ndarray, noise_ratio: float, weight: float = 1.0) -> bool:
        """Count a draw, by what is watched of ψ and ĝ, and return whether it is finite."""
        if self.sums is None:
            self.sums = np.zeros((0, 3, len(x)))
        if self.parts == self.most_parts:
            self.sums = self.sums[::2] + self.sums[1::2]
            self.counts = self.counts[::2] + self.counts[1::2]
            self.masses = self.masses[::2] + self.masses[1::2]
            self.length *= 2
        k = self.parts
        if k == len(self.counts):
            self.sums = np.concatenate([self.sums, np.zeros((1, *self.sums.shape[1:]))])
            self.counts, self.masses = np.append(self.counts, 0), np.append(self.masses, 0.0)
        self.seen += 1
        if not (np.isfinite(g).all() and math.isfinite(noise_ratio)):
            return False  # next to a rejected update
        self.counts[k] += 1
        self.masses[k] += weight
        part = self.sums[k]
        part[0] += weight * x * g
        part[1] += weight * x
        part[2] += weight * g
        self.noise += weight * noise_ratio
        return True

    def temperatures(self) -> tuple[np.ndarray, np.ndarray]:
        """Return each coordinate's temperature and its standard error."""
        assert self.sums is not None
        # Draws of a part that has just begun are left out: all parts are of one length
        n, masses = self.parts, self.masses[: self.parts]
        means, share = self.sums[:n] / masses[:, None, None], masses / masses.sum()
        # About the overall mean: far from the origin the parts' own means are noise
        parts = means[:, 0] - share @ means[:, 1] * means[:, 2]
        mean = share @ parts
        return mean, np.sqrt(n / (n - 1) * (share**2 @ (parts - mean) ** 2))

    def warnings(
        self, *, widening: Callable[[float], float] = float, temperature: bool = True
    ) -> list[str]:
        """Return what is off, in sentences; a noise ratio widens variances by its ``widening``.

        Without ``temperature`` the stationary law has none, and noise alone is judged.
        """
        if self.parts < _LEAST_PARTS or self.counts[: self.parts].min() < 5:
            return []
        mean, error = self.temperatures()
        if not mean.size:
            # Nothing but circles: their coordinates have no temperature
            mean, error = np.ones(1), np.zeros(1)
        allowed = stdtrit(self.parts - 1, 1 - 0.005 / len(mean))
        off = np.abs(mean - 1) > LARGEST_ERROR + allowed * error
        all_of_them = abs(mean.mean() - 1) > LARGEST_ERROR + 3 * np.sqrt(np.mean(error**2))
        noise = widening(self.noise / self.masses.sum())
        if temperature and (np.any(off) or all_of_them):
            worst = float(mean[np.argmax(np.where(off, np.abs(mean - 1), 0))])
            shown = worst if np.any(off) else float(mean.mean())
            return [
                f"The configurational temperature is {shown:.2f} and should be 1 (mean over all "
                f"coordinates: {mean.mean():.2f}). Variances of the draws are wrong by about this "
                "factor. R-hat does not see it. " + (_LESS_NOISE if noise > 0.05 else _SMALLER_STEP)
            ]
        if noise > LARGEST_ERROR:
            return [
                f"Gradient noise widens the variances by about {noise:.0%}. R-hat does not see "
                "it. " + _LESS_NOISE
            ]
        return []


_LESS_NOISE = (
    "Take a smaller step_size, a larger batch_size, or, if you do not have them yet, "
    "gradient=sg.ControlVariates() or MSGNHT."
)
_SMALLER_STEP = "Take a smaller step_size, or write the model non-centred."


def final_warning(
    of_tuning: Sequence[str],
    of_monitor: Sequence[str],
    rejected: int,
    tamed: int,
    updates: int,
    *,
    dimension: int = 1,
    outside: str = "",
) -> SamplerWarning | None:
    """Return what a chain says at its end, None where nothing is off.

    It had so many updates, of which some were not finite, and the gradient of some was scaled down.
    ``dimension`` is the number of its elements. ``outside`` says how many draws have no density,
    and by which variables.
    """
    texts = [f"While tuning, {text}." for text in of_tuning]
    if rejected:
        texts.append(
            f"{rejected} updates ({rejected / updates:.2%}) were not finite and were rejected. "
            "The draws are biased near where that happened: pass a smaller step_size."
        )
    share = tamed / max(updates, 1)
    if share > min(MOST_TAMED, dimension**-0.5):
        texts.append(
            f"In {100 * share:.3g}% of the updates the gradient was far larger than where the "
            "chain was tuned, and was scaled down: what is sampled is wider than the posterior. "
            "The chain has left that place, or its batches have become noisier: pass initvals= "
            "under which the data are likelier, tighter priors, or more batches=."
        )
    if outside:
        texts.append(
            f"{outside}: these draws are wrong. A gradient does not show where a density ends. "
            "Give the variable a transform that ends there, such as "
            "transform=pm.distributions.transforms.Interval(0, 10), or a distribution that has "
            "these bounds."
        )
    texts += of_monitor
    if not texts:
        return None
    kind = WarningType.DIVERGENCES if rejected else WarningType.BAD_PARAMS
    return SamplerWarning(kind, " ".join(texts), "warn")


def watched(parts: Sequence[Any]) -> np.ndarray:
    """Return about 1024 elements, evenly spread in each block, and at least one of each."""
    stride = max(1, -(-sum(part.size for part in parts) // MOST_WATCHED))
    if stride > 1:
        parts = [every(part, stride) for part in parts]
    return np.concatenate(parts, axis=None, dtype=float)

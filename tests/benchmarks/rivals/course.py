"""The course of a run: means and sds at moments, and when they are right."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

MEAN, SD = 0.1, 0.1


@dataclass
class Course:
    """Running moments of one run.

    Attributes
    ----------
    seconds : list of float
        Of each moment at which something was known.
    means, sds : list of ndarray
        What was known.
    draws : int
        How many were made, 0 of a fit.
    """

    seconds: list[float] = field(default_factory=list)
    means: list[np.ndarray] = field(default_factory=list)
    sds: list[np.ndarray] = field(default_factory=list)
    draws: int = 0
    _sums: Any = None

    def add(self, seconds: float, mean: np.ndarray, sd: np.ndarray) -> None:
        """Keep moments."""
        self.seconds.append(float(seconds))
        self.means.append(mean)
        self.sds.append(sd)

    def add_draws(self, seconds: float, draws: np.ndarray) -> None:
        """Keep the moments of all draws so far, of which these, as rows, are the latest."""
        if self._sums is None:
            # About the first draws, for the sake of precision
            self._sums = [draws.mean(axis=0), 0.0, 0.0]
        about, first, second = self._sums
        away = draws - about
        first, second = first + away.sum(axis=0), second + (away**2).sum(axis=0)
        self._sums = [about, first, second]
        self.draws += len(draws)
        if self.draws > 2:
            mean = first / self.draws
            variance = (second / self.draws - mean**2) * self.draws / (self.draws - 1)
            self.add(seconds, about + mean, np.sqrt(np.maximum(variance, 0)))

    def add_all(self, seconds: np.ndarray, draws: np.ndarray, parts: int = 200) -> None:
        """Keep the moments of draws made at these seconds, at moments that grow by a share."""
        ends = np.unique(np.geomspace(min(5, len(draws)), len(draws), parts).astype(int))
        for begin, end in zip([0, *ends], ends, strict=False):
            if end > begin:
                self.add_draws(seconds[end - 1], draws[begin:end])


def judged(course: Course, mean: np.ndarray, sd: np.ndarray, clock: Any) -> dict[str, Any]:
    """Compare with what is known, and return what is stored."""
    seconds = np.array(course.seconds)
    far = np.array([np.max(np.abs(x - mean) / sd) for x in course.means])
    ratios = np.array([[np.min(x / sd), np.max(x / sd)] for x in course.sds])
    off = np.maximum(far / MEAN, np.abs(ratios - 1).max(axis=1) / SD)
    error = np.array([np.linalg.norm(x - sd) / np.linalg.norm(sd) for x in course.sds])
    wrong = np.flatnonzero(~(off <= 1))
    first = 0 if len(wrong) == 0 else wrong[-1] + 1
    until = float(seconds[first]) if first < len(seconds) else None
    begin = course.seconds[0]
    kept = np.unique(np.geomspace(1, len(seconds), 60).astype(int)) - 1
    return {
        "until": until,
        "until_compiled": None if until is None else until - clock.compilation(until),
        "compilation": clock.compilation(),
        "first": begin,
        "seconds": float(seconds[-1]),
        "draws": course.draws,
        "mean_error": float(far[-1]),
        "sd_least": float(ratios[-1, 0]),
        "sd_most": float(ratios[-1, 1]),
        "sd_error": float(error[-1]),
        "sd_error_10": _last_before(seconds, error, 10),
        "sd_error_10_more": _last_before(seconds, error, begin + 10),
        "course": [[round(float(v), 5) for v in (seconds[k], off[k], error[k])] for k in kept],
    }


def _last_before(seconds: np.ndarray, values: np.ndarray, at: float) -> float | None:
    """Return the last value known at a moment that the run has reached."""
    if seconds[-1] < 0.97 * at or seconds[0] > at:
        return None
    return float(values[np.flatnonzero(seconds <= at)[-1]])

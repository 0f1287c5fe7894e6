"""What the log says of tuning: nothing while it is short, and in the end one line.

A line that another chain of the run has logged is not repeated.
"""

from __future__ import annotations

import logging
import mmap
import time

from zlib import crc32

import numpy as np

from pymc_sgmcmc.tuning.cost import spelled, told_time

__all__ = ["LOGGED", "LoggedLines", "Report"]

_log = logging.getLogger("pymc.sgmcmc")

# Seconds of tuning from which its steps are logged, and longest silence of the log from then on
_LONG, _SILENT = 15.0, 20.0


class LoggedLines:
    """What the chains of a run have logged, in memory that forked processes share."""

    def __init__(self) -> None:
        memory = mmap.mmap(-1, mmap.PAGESIZE)
        self._last = np.frombuffer(memory, np.float64, count=1)
        self._codes = np.frombuffer(memory, np.uint32, offset=self._last.nbytes)

    @property
    def last(self) -> float:
        """When something was said, on the clock of :func:`time.perf_counter`."""
        return float(self._last[0])

    def clear(self) -> None:
        """Begin a run."""
        self._codes[:] = self._last[:] = 0

    def is_new(self, text: str) -> bool:
        """Return whether no chain has said this, and remember that one does."""
        code = crc32(text.encode()) or 1
        if code in self._codes:
            return False
        self._codes[np.argmin(self._codes)] = code
        self._last[0] = time.perf_counter()
        return True


LOGGED = LoggedLines()


class Report:
    """Logs the tuning of one chain; ``step`` names what it is at."""

    def __init__(self) -> None:
        self.step = "start"
        self._began = time.perf_counter()

    @property
    def seconds(self) -> float:
        """How long the chain has been tuned."""
        return time.perf_counter() - self._began

    @property
    def is_long(self) -> bool:
        """Whether tuning has lasted so long that its steps are logged."""
        return self.seconds > _LONG

    def __call__(self, step: str) -> None:
        """Begin a step."""
        self.step = step
        if self.is_long:
            self._say(step, step)

    def trial(self, draws: int, thin: int, seconds: float) -> None:
        """Begin a run of the chain, with ``seconds`` for each update."""
        if self.is_long and draws * thin * seconds > _LONG:
            what = f"{draws} draws of {thin} updates"
            self._say(what, f"{what}, {spelled(draws * thin * seconds)}")

    def still(self) -> None:
        """Name the present step if the log has been silent for long."""
        if time.perf_counter() - max(self._began, LOGGED.last) > _SILENT:
            what = f"still {self.step}"
            self._say(f"{what} {self.seconds // _SILENT}", what)

    def _say(self, key: str, what: str) -> None:
        if LOGGED.is_new(key):
            _log.info("Tuning: %s (%.0f s).", what, self.seconds)

    def end(self, told: str, lasts: float) -> None:
        """Log what was found, and the seconds that the draws will take."""
        # Of long tunings each is told: chains may follow each other
        if LOGGED.is_new(told) or self.is_long:
            _log.info("Tuned in %.1f s: %s%s", self.seconds, told, told_time(lasts))

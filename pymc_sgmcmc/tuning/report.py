"""What the log says of tuning: nothing while it is short, and in the end one line.

A line that another chain of the run has logged is not repeated.
"""

from __future__ import annotations

import logging
import mmap
import time

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any
from zlib import crc32

import numpy as np

from pymc_sgmcmc.tuning.messages import in_words, time_of_draws

_log = logging.getLogger("pymc.sgmcmc")

# Seconds of tuning from which its steps are logged, longest silence of the log from then on, and
# seconds between two looks at it
_LONG, _SILENT, _LOOK = 15.0, 20.0, 5.0


class LoggedLines:
    """What the chains of a run have logged, in memory that forked processes share."""

    def __init__(self) -> None:
        memory = mmap.mmap(-1, mmap.PAGESIZE)
        self._last = np.frombuffer(memory, np.float64, count=1)
        self._codes = np.frombuffer(memory, np.uint32, offset=self._last.nbytes)

    def __reduce__(self) -> tuple[Any, ...]:
        # Processes that do not share memory log for themselves
        return LoggedLines, ()

    @property
    def last(self) -> float:
        """When a line was logged, on the clock of :func:`time.perf_counter`."""
        return float(self._last[0])

    def is_new(self, text: str) -> bool:
        """Return whether no chain has logged this, and remember that one does."""
        code = crc32(text.encode()) or 1
        if code in self._codes:
            return False
        self._codes[np.argmin(self._codes)] = code
        self._last[0] = time.perf_counter()
        return True


class Report:
    """Logs the tuning of one chain; ``step`` names what it is at."""

    def __init__(self, logged: LoggedLines) -> None:
        self.step = "compiling the density"
        self._logged = logged
        self._began = time.perf_counter()

    @property
    def seconds(self) -> float:
        """How long the chain has been tuned."""
        return time.perf_counter() - self._began

    def __call__(self, step: str) -> None:
        """Begin a step."""
        self.step = step
        if self.seconds > _LONG:
            self._say(step, step)

    def trial(self, draws: int, thin: int, seconds: float) -> None:
        """Begin a run of the chain, with ``seconds`` for each update."""
        if self.seconds > _LONG and draws * thin * seconds > _LONG:
            what = f"a run of {draws} draws with {thin} updates each"
            self._say(what, f"{what}, {in_words(draws * thin * seconds)}")

    def still(self) -> None:
        """Name the present step if the log has been silent for long."""
        if time.perf_counter() - max(self._began, self._logged.last) > _SILENT:
            what = f"still {self.step}"
            self._say(f"{what} {self.seconds // _SILENT}", what)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Call :meth:`still` every few seconds in a thread, during work that takes long."""
        done = Event()

        def watch() -> None:
            while not done.wait(_LOOK):
                self.still()

        thread = Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def end(self, cost: str, lasts: float) -> None:
        """Log what draws cost, and the seconds that they will take."""
        # Long tunings all say so: chains may follow each other
        if self._logged.is_new(cost) or self.seconds > _LONG:
            _log.info("Tuned in %.1f s: %s%s", self.seconds, cost, time_of_draws(lasts))

    def _say(self, key: str, what: str) -> None:
        if self._logged.is_new(key):
            _log.info("Tuning: %s (after %.0f s).", what, self.seconds)

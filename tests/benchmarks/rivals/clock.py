"""Processor seconds of a call, and how many of them were compilation."""

from __future__ import annotations

import os
import threading
import time

from typing import Any

import numpy as np

JAX_EVENTS = ("jaxpr_trace_duration", "jaxpr_to_mlir_module_duration", "backend_compile_duration")
TICK = 0.02


class Clock:
    """Processor seconds of this process, which is bound to one core.

    Unlike seconds on the wall they do not depend on what else the machine does. Compilation is
    what JAX reports of tracing, lowering and compiling, and what methods that compile otherwise
    add by :meth:`compiled`.
    """

    def __init__(self) -> None:
        self._start = _processor()
        # Begin and end on the wall
        self._compilations: list[tuple[float, float]] = []
        self._ticks: list[tuple[float, float]] = []

    def start(self) -> None:
        """Begin: the model and the data exist."""
        import jax

        self._start = _processor()
        self._tick()
        jax.monitoring.register_event_duration_secs_listener(self._heard)
        threading.Thread(target=self._keep_ticking, daemon=True).start()

    def seconds(self) -> float:
        """Return the seconds since the start."""
        return _processor() - self._start

    def compiled(self, begin: float, end: float) -> None:
        """Count what was between two seconds of ``time.time`` as compilation."""
        self._compilations.append((begin, end))

    def compilation(self, until: float = float("inf")) -> float:
        """Return the processor seconds of compilation up to a moment of :meth:`seconds`."""
        self._tick()
        walls, processors = np.array(self._ticks).T
        total, last = 0.0, 0.0
        for begin, end in sorted(self._compilations):
            # One that is within another counts once
            span = np.interp([max(begin, last), max(end, last)], walls, processors)
            total += float(np.diff(np.minimum(span, until))[0])
            last = max(last, end)
        return total

    def _heard(self, event: str, duration: float, **_: Any) -> None:
        if event.endswith(JAX_EVENTS):
            now = time.time()
            self.compiled(now - duration, now)

    def _tick(self) -> None:
        self._ticks.append((time.time(), self.seconds()))

    def _keep_ticking(self) -> None:
        while True:
            time.sleep(TICK)
            self._tick()


def _processor() -> float:
    """Seconds that the process and its finished children had a processor."""
    children = os.times()
    return time.process_time() + children.children_user + children.children_system

"""Processes that end when the one that waits for their draws is killed."""

from __future__ import annotations

import multiprocessing
import os
import time

from collections.abc import Callable
from functools import partial
from threading import Thread

from pymc_sgmcmc.backends.workarounds import in_process_of_a_chain

# Seconds between two looks at the parent: a chain computes for as long at most for nothing
_PERIOD = 0.5

_watched: set[int] = set()


def end_with_parent() -> None:
    """End this process soon after its parent, where PyMC forked it to sample a chain.

    A fork holds both ends of its pipe, so that it would wait for ever for a parent that was killed,
    and keep the chain's lock. Other processes see that the pipe is closed, but not before a draw.
    """
    parent = multiprocessing.parent_process()
    if parent is None or not in_process_of_a_chain() or os.getpid() in _watched:
        return
    _watched.add(os.getpid())
    # What a server of forks made has that server as its parent, and a pipe to the main process
    above = os.getppid()
    forked = os.name == "posix" and parent.pid == above
    wait = partial(_wait_for, above) if forked else parent.join
    Thread(target=_end_after, args=(wait,), daemon=True).start()


def _wait_for(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_PERIOD)


def _end_after(wait: Callable[[], None]) -> None:
    wait()
    # At any byte of a write: the store is made for that
    os._exit(1)

"""Processes that end when the one that waits for their draws is killed."""

from __future__ import annotations

import multiprocessing
import os
import time

from threading import Thread

__all__ = ["end_with_parent"]

# Seconds between two looks at the parent: a chain computes for as long at most for nothing
_PERIOD = 0.5

_watched: set[int] = set()


def end_with_parent() -> None:
    """End this process soon after its parent, where PyMC forked it to sample a chain.

    A fork holds both ends of its pipe, so that it would wait for ever for a parent that was killed,
    and keep the chain's lock. Processes that are not forked see that the pipe is closed.
    """
    parent = multiprocessing.parent_process()
    name = multiprocessing.current_process().name
    # The parent of what a server of forks made is that server
    forked = parent is not None and parent.pid == os.getppid()
    if not forked or not name.startswith("worker_chain_") or os.getpid() in _watched:
        return
    _watched.add(os.getpid())
    Thread(target=_watch, args=(os.getppid(),), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_PERIOD)
    # At any byte of a write: the store is made for that
    os._exit(1)

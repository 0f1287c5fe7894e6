"""Processes that are forked while a thread reads."""

import os
import signal
import threading
import warnings

import numpy as np
import pytest

from pymc_sgmcmc.disk.source import ChunkedSource


class Slow(ChunkedSource):
    """Decodes when it is let."""

    def __init__(self):
        super().__init__("rows", (4,), float, float, np.array([0, 2, 4]))
        self.begun, self.let = threading.Event(), threading.Event()

    def decode(self, k):
        self.begun.set()
        self.let.wait()
        return np.full(2, float(k))

    def check(self):
        pass


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_does_not_wait_for_a_thread_that_it_has_not():
    source = Slow()
    thread = threading.Thread(target=source.rows, args=(0, 4))
    thread.start()
    source.begun.wait()
    with warnings.catch_warnings(action="ignore"):
        child = os.fork()
    if child == 0:
        signal.alarm(20)
        source.let.set()
        os._exit(int(not np.array_equal(source.rows(0, 4), [0, 0, 1, 1])))
    source.let.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

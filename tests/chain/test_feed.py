"""Rows that are read ahead of their use."""

import threading

from types import SimpleNamespace

import numpy as np
import pytest

from pymc_sgmcmc.chain.feed import Feed, _Planned
from pymc_sgmcmc.disk.source import DiskError


class Failing(Feed):
    """What is read ahead cannot be read."""

    def _planned(self, updates, count):
        state = self._state.batch_rng.bit_generator.state
        return _Planned([np.array([updates])], state, [])

    def _read(self, drawn):
        if threading.current_thread() is not threading.main_thread():
            raise DiskError("no such rows")
        return drawn, []


def test_rows_that_nobody_wants_may_be_unreadable():
    state = SimpleNamespace(row_order=0, batches_left=[], batch_rng=np.random.default_rng(0))
    feed = Failing(SimpleNamespace(on_disk=True, tables=lambda order: []), None, state)
    assert feed.next(20, 1) == ([20], [])
    # Another call than the one that was read ahead for
    assert feed.next(40, 1) == ([40], [])
    with pytest.raises(DiskError, match="no such rows"):
        feed.next(40, 1)

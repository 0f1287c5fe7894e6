"""What a compiled function does at its first call."""

from contextlib import contextmanager

import numpy as np
import pytensor.tensor as pt
import pytest

from pymc_sgmcmc.backends import compiling


def test_a_first_call_that_is_interrupted_is_a_first_call_again(monkeypatch):
    pytest.importorskip("jax")
    x = pt.vector("x")
    function = compiling.compiled([x], [2 * x], "jax")
    calls = []

    @contextmanager
    def interrupted_once():
        calls.append(1)
        if len(calls) == 1:
            raise KeyboardInterrupt
        yield

    monkeypatch.setattr(compiling, "compilations_kept", interrupted_once)
    with pytest.raises(KeyboardInterrupt):
        function(np.ones(3))
    for _ in range(2):
        np.testing.assert_array_equal(function(np.ones(3))[0], 2 * np.ones(3))
    assert len(calls) == 2

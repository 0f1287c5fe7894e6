"""What a compiled function does at its first call, and which graphs are interpreted."""

from contextlib import contextmanager
from functools import reduce

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from pytensor.compile.mode import FAST_COMPILE, Mode
from pytensor.tensor.math import Dot

from pymc_sgmcmc.backends import compiling
from pymc_sgmcmc.backends.interpreting import INTERPRETER, UNSIMPLIFIED


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


@pytest.mark.parametrize(("combine", "result"), [(pt.add, 70 * 1.1), (pt.mul, 1.1**70)])
def test_sums_and_products_of_many_operands_are_interpreted(combine, result):
    vectors = [pt.vector() for _ in range(70)]
    values = [np.full(3, 1.1) for _ in vectors]
    for graph in (combine(*vectors), reduce(combine, vectors)):
        for mode in (INTERPRETER, UNSIMPLIFIED):
            computed = pytensor.function(vectors, graph, mode=mode)(*values)
            np.testing.assert_allclose(computed, result)
        # Where PyTensor interprets them, this can go
        with pytest.raises(NotImplementedError, match="32"):
            pytensor.function(vectors, graph, mode=FAST_COMPILE)(*values)


def test_interpreted_functions_would_have_blas_and_fused_operations():
    x, y = pt.matrices("x", "y")
    graph = pt.exp(x @ y) * 2 + 1

    def operations(mode):
        return [n.op for n in pytensor.function([x, y], graph, mode=mode).maker.fgraph.toposort()]

    ours = operations(INTERPRETER)
    assert any(isinstance(op, Dot) for op in ours)
    assert not any("Composite" in str(op) or op.destroy_map for op in ours)
    # Needed as long as this is so
    usual = operations(Mode(linker="py", optimizer="fast_run"))
    assert any("Composite" in str(op) for op in usual)
    assert not any(isinstance(op, Dot) for op in usual)
    assert any(op.destroy_map for op in usual)

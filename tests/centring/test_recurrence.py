"""A recurrence's values, gradient and backends, beside a matrix's."""

import numpy as np
import pytensor.tensor as pt
import pytest

from pytensor.gradient import verify_grad

from pymc_sgmcmc.backends import jax_backend
from pymc_sgmcmc.backends.compiling import compiled
from pymc_sgmcmc.centring.recurrence import Recurrence

SHAPES = (1,), (7,), (3, 5), (2, 3, 4)


def series(shape):
    rng = np.random.default_rng(1)
    return rng.normal(size=shape), rng.uniform(-1, 1, shape)


def by_matrix(x, kept, *, ahead):
    """Return y by the inverse of I − rN, N a move by one place."""
    solved = np.empty_like(x)
    for at in np.ndindex(x.shape[:-1]):
        matrix = np.eye(x.shape[-1]) - np.diag(kept[at][1:], -1)
        solved[at] = np.linalg.solve(matrix if ahead else matrix.T, x[at])
    return solved


@pytest.mark.parametrize("ahead", [True, False])
@pytest.mark.parametrize("backend", ["interpreter", "jax", "numba"])
def test_it_is_the_inverse_of_a_bidiagonal_matrix(backend, ahead):
    if backend == "jax":
        pytest.importorskip("jax")
    inputs = [pt.tensor(shape=(None,) * len(shape)) for shape in SHAPES for _ in range(2)]
    outputs = [Recurrence(ahead=ahead)(*inputs[i : i + 2]) for i in range(0, len(inputs), 2)]
    values = [value for shape in SHAPES for value in series(shape)]
    for i, y in enumerate(compiled(inputs, outputs, backend)(*values)):
        x, kept = values[2 * i : 2 * i + 2]
        np.testing.assert_allclose(y, by_matrix(x, kept, ahead=ahead), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("ahead", [True, False])
def test_as_on_a_gpu_it_is_a_scan_of_pairs(ahead, monkeypatch):
    pytest.importorskip("jax")
    jax_backend.prepare()
    monkeypatch.setattr(jax_backend, "on_processor", lambda backend: False)
    x, kept = series((3, 6))
    inputs = [pt.matrix(), pt.matrix()]
    [y] = compiled(inputs, [Recurrence(ahead=ahead)(*inputs)], "jax")(x, kept)
    np.testing.assert_allclose(y, by_matrix(x, kept, ahead=ahead), rtol=1e-12)


@pytest.mark.parametrize("ahead", [True, False])
def test_its_gradient_is_that_of_differences(ahead):
    rng = np.random.default_rng(2)
    verify_grad(Recurrence(ahead=ahead), series((2, 5)), rng=rng, mode="FAST_COMPILE")

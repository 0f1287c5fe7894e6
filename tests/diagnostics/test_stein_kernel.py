"""The Stein kernel."""

import numpy as np
import pytest

from pymc_sgmcmc.diagnostics.stein import SteinKernel


@pytest.mark.parametrize("squared_length", [1.0, 2.5])
def test_stein_kernel_is_the_operator_on_the_multiquadric(squared_length):
    rng = np.random.default_rng(0)
    x, s = rng.normal(size=(2, 5, 3))
    found = SteinKernel(x, s, squared_length).rows(slice(0, 5))

    def k(a, b):
        return (1 + np.sum((a - b) ** 2, axis=-1) / squared_length) ** -0.5

    e = 1e-4 * np.eye(3)

    def at(i, j):
        a, b = x[i], x[j]
        of_a = (k(a + e, b) - k(a - e, b)) / 2e-4
        of_b = (k(a, b + e) - k(a, b - e)) / 2e-4
        both = k(a + e, b + e) - k(a + e, b - e) - k(a - e, b + e) + k(a - e, b - e)
        return both.sum() / 4e-8 + of_a @ s[j] + of_b @ s[i] + k(a, b) * s[i] @ s[j]

    expected = [[at(i, j) for j in range(5)] for i in range(5)]
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    kernel = SteinKernel(x, s, squared_length)
    np.testing.assert_allclose(kernel.diagonal(), np.diag(found), rtol=1e-12)
    blocks = np.concatenate([block for _, block in kernel.blocks()])
    np.testing.assert_allclose(blocks, found, rtol=1e-12)

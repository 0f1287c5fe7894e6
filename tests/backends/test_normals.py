"""Millions of normals."""

import numpy as np
import pytest

from scipy import stats

from pymc_sgmcmc.backends.normals import fill_normal


def test_polynomials_of_the_normals_are_exact_to_float32():
    out = np.empty(2**15, dtype=np.float32)
    fill_normal(np.random.default_rng(1), out)
    bits = np.random.default_rng(1).bit_generator.random_raw(out.size // 2).view(np.uint32)
    first, second = bits[: out.size // 2], bits[out.size // 2 :].view(np.int32)
    one, other = np.split(out.astype(float), 2)
    radius = np.sqrt(-2 * np.log((first.astype(np.float32).astype(float) + 0.5) / 2**32))
    # Near u = 1 the logarithm is as coarse as u itself in float32
    sure = radius > 0.01
    np.testing.assert_allclose(np.hypot(one, other)[sure], radius[sure], rtol=1e-3)
    usual = radius > 0.5
    np.testing.assert_allclose(np.hypot(one, other)[usual], radius[usual], rtol=5e-7)
    eighth = np.abs(second) * (np.pi / 4 / 2**31)
    found = np.arctan2(np.minimum(abs(one), abs(other)), np.maximum(abs(one), abs(other)))
    np.testing.assert_allclose(found[sure], eighth[sure], rtol=1e-6, atol=1e-9)
    # All eight places of the angle's eighth are taken equally often
    place = (one > 0) * 4 + (other > 0) * 2 + (abs(one) > abs(other))
    counts = np.bincount(place, minlength=8)
    assert stats.chisquare(counts).pvalue > 1e-3


@pytest.mark.parametrize("size", [2**15, 2**15 + 3, 5])
def test_double_precision_gets_the_same_normals(size):
    single, double = np.empty(size, dtype=np.float32), np.empty(size)
    for out in (single, double):
        fill_normal(np.random.default_rng(2), out)
    np.testing.assert_array_equal(single, double)

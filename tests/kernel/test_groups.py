"""Arrays in named groups and flat vectors in parts."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from pymc_sgmcmc.kernel.groups import Groups
from pymc_sgmcmc.kernel.ravel import Ravel


def test_arrays_are_put_in_the_order_of_symbols_or_refused():
    a, b = pt.vector("a", shape=(3,)), pt.matrix("b", shape=(None, 2))
    groups = Groups(first=[a], second=[], third=[b, b])
    assert groups.flat == [a, b, b]
    assert groups.like([1, 2, 3]) == {"first": [1], "second": [], "third": [2, 3]}
    x, y = np.zeros(3), np.zeros((5, 2))
    arrays = {"third": [y, y], "second": [], "first": [x]}
    assert [z is w for z, w in zip(groups.arranged(arrays), [x, y, y], strict=True)] == [True] * 3
    said = r"groups \{'first': 1, 'second': 0, 'third': 2\}, got \{'"
    for wrong in ({**arrays, "second": [x]}, {"first": [x], "third": [y, y]}):
        with pytest.raises(ValueError, match=said):
            groups.arranged(wrong)
    groups.check(arrays)
    with pytest.raises(ValueError, match=r"'b' of the inputs 'third' has shape \(None, 2\), got"):
        groups.check({"third": [y, x]})


def test_parts_of_a_vector_are_those_of_arrays_and_of_symbols():
    parts = [np.array(1.0), np.arange(3.0), np.ones((2, 2), dtype="float32")]
    ravel = Ravel.of(parts)
    assert (ravel.size, ravel.sizes) == (8, [1, 3, 4])
    flat = Ravel.join(parts)
    symbol = pt.vector(shape=(8,))
    compiled = pytensor.function([symbol], ravel.split(symbol), mode="FAST_COMPILE")(flat)
    for split in (ravel.split(flat), ravel.split(np.stack([flat, 2 * flat])), compiled):
        for x, part in zip(split, parts, strict=True):
            assert x.dtype == part.dtype
            np.testing.assert_array_equal(x if x.ndim == part.ndim else x[0], part)

"""A block of rows at a moving offset."""

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from pymc_sgmcmc.backends import jax_backend
from pymc_sgmcmc.backends.row_block import RowBlock

TABLE = np.arange(21.0).reshape(7, 3)


@pytest.mark.parametrize("mode", ["JAX", "FAST_COMPILE"])
def test_row_block_is_a_slice(mode):
    if mode == "JAX":
        pytest.importorskip("jax")
        jax_backend.prepare()
    table, offset = pt.matrix("table"), pt.iscalar("offset")
    block = RowBlock(4)(table, offset)
    function = pytensor.function([table, offset], [block, block.shape[0]], mode=mode)
    for start in (0, 2, 3):
        rows, count = function(TABLE, np.int32(start))
        np.testing.assert_array_equal(rows, TABLE[start : start + 4])
        assert count == 4


def test_jax_refuses_a_slice_whose_start_it_does_not_know():
    # RowBlock is needed as long as this is so
    pytest.importorskip("jax")
    table, offset = pt.matrix("table"), pt.iscalar("offset")
    function = pytensor.function([table, offset], table[offset : offset + 4], mode="JAX")
    with pytest.raises((NotImplementedError, IndexError, TypeError)):
        function(TABLE, np.int32(2))

"""Rows as batches of a scheme find them."""

import numpy as np

from pymc_sgmcmc.kernel.tables import arrange


def laid_out(scheme, array, rng, batch_size):
    """Return the rows in an order of their own, the first B - 1 of them twice."""
    if not scheme.contiguous:
        return array
    table = np.empty((len(array) + batch_size - 1, *array.shape[1:]), array.dtype)
    arrange(array, rng, table)
    return table

"""Rows as a batch scheme lays them out."""

import numpy as np


def laid_out(scheme, array, rng, batch_size):
    """Return the rows in the scheme's order, the first B - 1 of them twice."""
    table = np.empty((len(array) + batch_size - 1, *array.shape[1:]), array.dtype)
    if not scheme.contiguous:
        return array
    scheme.arrange(array, rng, table)
    return table

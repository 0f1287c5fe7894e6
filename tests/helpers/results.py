"""Results of sampling that are written down by hand."""

import numpy as np
import xarray as xr


def result_of(**arrays):
    """A result with these draws, shape (chain, draw, ...)."""
    posterior = {
        name: (("chain", "draw", *[f"{name}_dim_{i}" for i in range(x.ndim - 2)]), x)
        for name, x in arrays.items()
    }
    return xr.DataTree.from_dict({"posterior": xr.Dataset(posterior)})


SDS = np.geomspace(0.01, 100, 10)


def ten_normal_draws(seed, widening, chains, draws):
    e = np.random.default_rng(seed).normal(size=(chains, draws, 10))
    return result_of(x=3.0 + widening * SDS * e)

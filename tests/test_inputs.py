"""Arrays as users have them: the density is that of plain arrays, or the fault is named."""

import warnings

from itertools import chain

import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_sgmcmc as sg

from helpers.interpreting import interpreted_unless_slow  # noqa: F401
from helpers.modes import PLAIN
from pymc_sgmcmc.model.coordinates import coordinates_at
from pymc_sgmcmc.model.initial_point import initial_point
from pymc_sgmcmc.model.posterior import Posterior
from pymc_sgmcmc.model.row_view import in_batches
from pymc_sgmcmc.testing import UNTUNED

N, B = 60, 50
RNG = np.random.default_rng(0)
# Numbers that half precision holds, so that all kinds of arrays hold the same
ROWS = {
    "x": RNG.integers(-9, 9, size=(N, 2)) / 8,
    "g": np.arange(N) % 4,
    "z": RNG.random(N) < 0.5,
    "y": RNG.integers(-9, 9, size=N) / 4,
    "n": RNG.integers(0, 5, size=N),
}


class Column:
    """A column of a library that NumPy reads and PyTensor does not know, such as polars."""

    def __init__(self, array):
        self._array = array

    def __array__(self, dtype=None, copy=None):
        return np.array(self._array, dtype=dtype)


def framed(array):
    """Pandas' columns, with labels that are no row numbers."""
    labels = [f"row {k}" for k in range(N)]
    kind = pd.DataFrame if array.ndim == 2 else pd.Series
    return kind(array, index=labels)


def nullable(array):
    return framed(array).astype({"f": "Float64", "i": "Int64", "b": "boolean"}[array.dtype.kind])


def codes(array):
    return framed(array).astype("category").cat.codes if array.dtype.kind == "i" else framed(array)


def short(array):
    return array.astype({"f": "float16", "i": "int8", "b": "uint8"}[array.dtype.kind])


def single(array):
    return array.astype({"f": "float32", "i": "int32", "b": "bool"}[array.dtype.kind])


def unsigned(array):
    return array.astype({"f": "float64", "i": "uint64", "b": "uint8"}[array.dtype.kind])


def swapped(array):
    return array.astype(array.dtype.newbyteorder(">"))


def with_gaps(array):
    return np.asfortranarray(np.repeat(array, 2, axis=0))[::2]


def backwards(array):
    return array[::-1].copy()[::-1]


def read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


# Of each kind what PyMC takes: arrays of a model, in pm.Data, in pm.Minibatch
KINDS = [
    (np.asarray, "xgzyn", "xgzyn", "xgzy"),
    (framed, "xgzyn", "xgzyn", "xgzy"),
    (codes, "xgzyn", "xgzyn", "xgzy"),
    (nullable, "gzyn", "gzyn", ""),
    (Column, "yn", "xyn", ""),
    (np.ndarray.tolist, "xgzyn", "xyn", "xgzy"),
    (single, "xgzyn", "xgzyn", "xgzn"),
    (short, "xgyn", "xgyn", "xg"),
    (unsigned, "gyn", "gyn", "g"),
    (swapped, "yn", "", ""),
    (with_gaps, "xgzyn", "xgzyn", "xgzy"),
    (backwards, "xgzyn", "xgzyn", "xgzy"),
    (read_only, "xgzyn", "xgzyn", "xgzy"),
    (np.ma.masked_array, "", "xgzyn", ""),
]


PLACES = ["all rows", "batches", "pm.Data", "pm.Minibatch"]


def model_of(place):
    """A regression for each kind of arrays; plain ones where PyMC does not take it."""
    batches = place == "pm.Minibatch"
    with pm.Model(coords=None if batches else {"obs": range(N)}) as model:
        slopes = pm.Normal("slopes", shape=(len(KINDS), 2))
        effects = pm.Normal("effects", shape=(len(KINDS), 4))
        for k, (convert, *of_places) in enumerate(KINDS):
            b, e, how = slopes[k], effects[k], {"dims": "obs"}
            taken = of_places[max(0, PLACES.index(place) - 1)]
            rows = {
                name: convert(array) if name in taken else array for name, array in ROWS.items()
            }
            if place == "pm.Data":
                for name, array in rows.items():
                    dims = ("obs", None) if name == "x" else "obs"
                    rows[name] = pm.Data(f"{name} {k}", array, dims=dims)
            elif batches:
                # Whole numbers that PyMC takes as a batch of counts
                rows["n"] = rows["n"] if "n" in taken else ROWS["n"].astype("int32")
                rows = dict(zip(rows, pm.Minibatch(*rows.values(), batch_size=B), strict=True))
                how = {"total_size": N}
            mean = pm.math.dot(rows["x"], b) + e[rows["g"]] + pt.switch(rows["z"], b[0], 0.5)
            pm.Normal(f"y of {k}", mean, 1, observed=rows["y"], **how)
            pm.Poisson(f"n of {k}", pt.exp(b[1]), observed=rows["n"], **how)
    return model


def gradient(model, batch):
    """At the start, for the first rows of each minibatch, once the step's checks have passed."""
    sg.SGLD(model=model, step_size=1e-3, **UNTUNED, **batch)
    read = in_batches(model, batch.get("batch_dim"), batch.get("batch_size"))
    coordinates, start, scales = coordinates_at(
        model, model.value_vars, "model", initial_point(model)
    )
    posterior = Posterior(read, coordinates)
    inputs = [*posterior.phi, *posterior.scales, *chain(*posterior.rows), *posterior.data]
    function = pm.compile(inputs, posterior.gradient, mode=PLAIN, on_unused_input="ignore")
    rows = [np.asarray(x)[:B] for arrays in posterior.arrays for x in arrays]
    return function(*start, *scales, *rows, *posterior.data.values())


@pytest.mark.parametrize(
    "place",
    [pytest.param(p, marks=[] if p == "pm.Minibatch" else [pytest.mark.slow]) for p in PLACES],
)
def test_gradients_are_those_of_plain_arrays(place):
    batch = {"batch_size": B, "batch_dim": "obs"} if place in PLACES[1:3] else {}
    for of_kinds in gradient(model_of(place), batch):
        assert np.ptp(of_kinds[0])
        for (convert, *_), found in zip(KINDS, of_kinds, strict=True):
            np.testing.assert_allclose(found, of_kinds[0], 1e-9, err_msg=convert.__name__)


MISSING = np.where(ROWS["g"] == 0, np.nan, ROWS["y"])


@pytest.mark.parametrize(
    "observed",
    [
        MISSING,
        np.ma.masked_array(ROWS["y"], ROWS["g"] == 0),
        framed(MISSING),
        nullable(ROWS["y"]).where(ROWS["g"] > 0),
        [None if np.isnan(y) else y for y in MISSING],
    ],
    ids=["nan", "mask", "pandas", "nullable", "None"],
)
def test_missing_values_are_sampled_with_all_rows(observed):
    """PyMC's own variable for them; in batches of rows they are refused by name."""
    with pm.Model(coords={"obs": range(N)}) as model, warnings.catch_warnings():
        warnings.simplefilter("ignore", pm.exceptions.ImputationWarning)
        pm.Normal("y", pm.Normal("a", initval=0.5), observed=observed, dims="obs")
    with pytest.raises(NotImplementedError, match=r"'y' has missing values.*Leave these rows out"):
        gradient(model, {"batch_size": B, "batch_dim": "obs"})
    of_mean, of_missing = gradient(model, {})
    seen, missing = MISSING[ROWS["g"] > 0], initial_point(model)["y_unobserved"]
    np.testing.assert_allclose(of_missing, missing - 0.5)
    np.testing.assert_allclose(of_mean, 0.5 + np.sum(0.5 - seen) + np.sum(0.5 - missing))

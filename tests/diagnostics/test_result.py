"""Draws are read in the model's order of axes and labels, and by their weights."""

import numpy as np
import pymc as pm
import pytest
import xarray as xr

from helpers.results import result_of
from pymc_sgmcmc.diagnostics.result import draws_of, point_of

DIMS = "chain", "draw", "a", "b"


@pytest.fixture(scope="module")
def model():
    """Its labels are words, dates and none."""
    days = np.array(["2026-01-01", "2026-01-03", "2026-01-02"], dtype="datetime64[ns]")
    with pm.Model(coords={"a": ["u", "v"], "b": days}) as model:
        model.add_coord("c", length=4)
        pm.Normal("x", dims=("a", "b"))
        pm.Normal("z", dims="c")
    return model


@pytest.fixture
def draws(model):
    rng = np.random.default_rng(0)
    labels = {name: list(model.coords[name]) for name in "ab"}
    return xr.Dataset(
        {
            "x": (DIMS, rng.normal(size=(2, 5, 2, 3))),
            "z": (("chain", "draw", "c"), rng.normal(size=(2, 5, 4))),
        },
        {**labels, "chain": [0, 1], "draw": range(5)},
    )


def read(result, model):
    return draws_of(result, model, group="posterior", limit=None).values


def test_axes_and_labels_may_have_another_order(model, draws):
    expected = draws["x"].values.reshape(10, 2, 3)
    for other in (
        draws,
        draws.transpose(*reversed(DIMS), ...),
        draws.sortby("b"),
        draws.isel(a=[1, 0]).transpose("b", ...),
        draws.drop_vars(["a", "b"]),
        draws.rename(a="p", b="q"),
    ):
        np.testing.assert_array_equal(read(other, model)["x"], expected)
    mean = draws.sortby("b").mean(["chain", "draw"])
    np.testing.assert_allclose(point_of("point", mean, model)["x"][0], expected.mean(axis=0))


@pytest.mark.parametrize("labels", [["u", "w"], ["u", "u"], [0, 1]])
def test_other_labels_are_refused(model, draws, labels):
    with pytest.raises(ValueError, match=r"result has other labels of 'x' along the dim 'a' than"):
        read(draws.assign_coords(a=labels), model)


def test_another_length_of_a_dim_is_refused(model, draws):
    for other, name in ((draws.isel(c=[0, 1]), "z"), (draws.isel(b=[0]), "x")):
        with pytest.raises(ValueError, match=rf"result has '{name}' with the shape .*Pass the mod"):
            read(other, model)


@pytest.mark.parametrize(
    ("other", "agree"), [([2, 3, 2, 3], False), ([2e-9, 2, 2e-9, 2], True), ([1, 1, 1, 1], True)]
)
def test_weights_of_several_step_methods_count_where_they_agree(other, agree):
    with pm.Model() as model:
        pm.Normal("x")
    weight = np.array([[1e-9, 1.0, 1e-9, 1.0]])
    both = np.stack([[other], weight], axis=-1)
    result = result_of(x=np.array([[0.0, 1.0, 2.0, 3.0]]))
    stats = xr.Dataset({"weight": (("chain", "draw", "weight_dim_0"), both)})
    result["sample_stats"] = xr.DataTree(stats)
    if agree:
        chosen = draws_of(result, model, group="posterior", limit=2).values["x"]
        np.testing.assert_array_equal(chosen, [1, 3])
    else:
        with pytest.raises(ValueError, match="other weights of one step method"):
            draws_of(result, model, group="posterior", limit=2)

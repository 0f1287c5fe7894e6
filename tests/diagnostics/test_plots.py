"""Figures of what tuning found and of temperatures, from the result alone."""

import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
import pytest
import xarray as xr

import pymc_sgmcmc as sg

from helpers.sampling import run
from pymc_sgmcmc.diagnostics import plot_temperature, plot_tuning
from pymc_sgmcmc.testing import UNTUNED


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A result of a minibatched hierarchy, written to a file and read again."""
    rng = np.random.default_rng(1)
    group = np.repeat(np.arange(6), 500)
    y = rng.normal(size=6)[group] + rng.normal(size=len(group))
    with pm.Model(coords={"group": list("abcdef")}):
        rows, seen = pm.Minibatch(group, y, batch_size=100)
        mu = pm.Normal("mu", 0, 3)
        theta = pm.Normal("theta", mu, 1, dims="group")
        pm.Normal("y", theta[rows], 1, observed=seen, total_size=len(y))
        step = sg.CoRVSGLD()
        dt = run(step, draws=200)
    weights = step.centring_weights["theta"]
    path = tmp_path_factory.mktemp("kept") / "dt.nc"
    dt.to_netcdf(path)
    with xr.open_datatree(path) as read:
        yield read.load(), weights
    plt.close("all")


def points(collection, panel):
    """Lines by name: the abscissas of their points."""
    axis = collection.get_target(panel, {})
    found = {}
    for dots in axis.collections:
        x, y = np.asarray(dots.get_offsets()).T
        found[axis.get_yticklabels()[round(y[0])].get_text()] = list(x)
    return found


def test_what_tuning_found_survives_a_file(kept):
    dt, weights = kept
    stats = dt.sample_stats.isel(draw=-1)
    collection = plot_tuning(dt)
    assert points(collection, "thin") == {f"chain {k}": [stats["thin"][k]] for k in range(2)}
    assert "batches of 100 rows" in collection.get_target("batches", {}).get_title()
    noise = points(collection, "noise")
    assert list(noise) == ["mu", "theta"]
    np.testing.assert_array_equal(noise["theta"], stats["noise[theta]"])
    # The location is none of the likelihood's; no batch changes its gradient
    assert 0 <= noise["mu"][0] <= noise["theta"][0] < 1
    centring = points(collection, "centring")
    assert list(centring) == ["theta"]
    assert centring["theta"][1] == pytest.approx(weights.mean())
    assert weights.mean() > 0.9


def test_temperatures_survive_a_file(kept):
    dt, _ = kept
    found = points(plot_temperature(dt), "temperature")
    assert list(found) == ["all coordinates", "mu", "theta"]
    for name in ("mu", "theta"):
        assert found[name] == [
            pytest.approx(float(dt.sample_stats[f"config_temperature[{name}]"].mean()))
        ]
        assert abs(found[name][0] - 1) < 0.3


def test_a_temperature_that_is_off_has_another_colour():
    with pm.Model():
        pm.Normal("x", shape=50)
        pm.Normal("y", sigma=3, shape=50)
        step = sg.SGHMC(step_size=0.9, backend="jax", **UNTUNED)
        dt = run(step, draws=200, chains=1)
    dt.sample_stats["config_temperature[x]"] += 0.5
    axis = plot_temperature(dt).get_target("temperature", {})
    labels = [label.get_text() for label in axis.get_yticklabels()]
    assert labels == ["all coordinates", "momentum", "x", "y"]
    colors = [tuple(dots.get_facecolor()[0]) for dots in axis.collections]
    assert colors[2] != colors[3]
    plt.close("all")


def test_several_steps_and_a_step_of_pymc():
    with pm.Model() as model:
        x, y, z = (pm.Normal(name) for name in "xyz")
        steps = [sg.SGLD([x], model=model), sg.CoRVSGLD([y], model=model), pm.Slice([z])]
        dt = run(steps, 50, model=model, tune=20)
    thin = points(plot_tuning(dt), "thin")
    assert {name: len(x) for name, x in thin.items()} == {"chain 0": 2, "chain 1": 2}
    assert list(points(plot_temperature(dt), "temperature")) == ["all coordinates", "x", "y"]
    plt.close("all")


def test_visuals_and_backends(kept):
    dt, _ = kept
    without = plot_tuning(dt, visuals={"point": False, "title": {"color": "red"}})
    axis = without.get_target("thin", {})
    assert not axis.collections
    assert axis.title.get_color() == "red"
    assert plot_temperature(dt, backend="none").backend == "none"
    wide = plot_tuning(dt, figure_kwargs={"figsize": (20, 3)}).viz["figure"].item()
    assert tuple(wide.get_size_inches()) == (20, 3)


def test_one_chain_and_one_draw_are_shown(kept):
    dt, _ = kept
    one = dt.isel(chain=1, draw=-1)
    assert list(points(plot_tuning(one), "thin")) == ["chain 1"]
    assert list(points(plot_temperature(dt.isel(chain=0)), "temperature"))[1:] == ["mu", "theta"]
    for plot in (plot_tuning, plot_temperature):
        with pytest.raises(ValueError, match=r"^dt has no draws: its sample_stats have the sizes"):
            plot(dt.isel(draw=slice(0, 0)))
    plt.close("all")


def test_what_is_no_result_is_refused(kept):
    dt, _ = kept
    nuts = xr.DataTree.from_dict({"sample_stats": xr.Dataset({"step_size": 1.0})})
    for plot in (plot_tuning, plot_temperature):
        for bad, error, match in (
            (dt["posterior"].to_dataset(), TypeError, "^dt must be the DataTree"),
            (nuts, ValueError, "^dt has no draws of a step method of pymc_sgmcmc"),
        ):
            with pytest.raises(error, match=match):
                plot(bad)
        with pytest.raises(ValueError, match=r"^backend must be"):
            plot(dt, backend="gnuplot")
        with pytest.raises(ValueError, match=r"^A key of visuals must be"):
            plot(dt, visuals={"points": {}})
    without = dt.copy()
    without["sample_stats"] = (
        dt["sample_stats"]
        .to_dataset()
        .drop_vars(["config_temperature[mu]", "config_temperature[theta]"])
    )
    with pytest.raises(ValueError, match=r"^dt has no temperatures"):
        plot_temperature(without)

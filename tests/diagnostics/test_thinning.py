"""Stein thinning."""

import numpy as np
import pymc as pm
import pytest
import xarray as xr

from helpers.results import SDS, result_of, ten_normal_draws
from pymc_sgmcmc.diagnostics import gradient_noise, ksd, stein_thinning


def test_stein_thinning_beats_naive_thinning(ten_normals):
    # Chains that are too wide and start far out
    dt = ten_normal_draws(7, 1.2, 2, 600)
    dt["posterior"]["x"][0, :50] += 3 * SDS
    dt["posterior"] = dt["posterior"].to_dataset().assign(twice=2 * dt["posterior"]["x"])
    size = 60
    thinned = stein_thinning(dt, size, ten_normals)
    group = thinned["posterior_thinned"]
    assert "posterior_thinned" not in dt.children
    assert dict(group["x"].sizes) == {"chain": 1, "draw": size, "x_dim_0": 10}

    source = dt["posterior"]["x"].values[group["source_chain"], group["source_draw"]]
    np.testing.assert_array_equal(group["x"].values[0], source)
    np.testing.assert_array_equal(group["twice"], 2 * group["x"])

    of_thinned = ksd(thinned, ten_normals, group="posterior_thinned", reference=dt)
    assert of_thinned["ksd_all"].item() == pytest.approx(group.attrs["ksd"], rel=1e-9)
    every = dt["posterior"].to_dataset().isel(draw=slice(None, None, 1200 // size))
    naive = [
        ksd(every.isel(chain=[i]), ten_normals, reference=dt)["ksd_all"].item() for i in range(2)
    ]
    both = ksd(every, ten_normals, reference=dt)["ksd_all"].item()
    print(f"KSD of {size} draws: Stein {group.attrs['ksd']:.3f}, naive {both:.3f}")
    assert group.attrs["ksd"] < 0.7 * both < 0.7 * max(naive)
    # Burn-in is hardly taken
    early = (group["source_chain"] == 0) & (group["source_draw"] < 50)
    assert early.sum() <= 1


def test_a_group_is_taken_as_it_stands_in_a_result(ten_normals):
    dt = ten_normal_draws(7, 1.0, 2, 50)
    xr.testing.assert_identical(ksd(dt["posterior"], ten_normals), ksd(dt, ten_normals))
    with pytest.raises(TypeError, match=r"^result must"):
        stein_thinning(dt["posterior"], 5, ten_normals)
    with pm.Model() as model:
        y = pm.Minibatch(np.arange(9.0), batch_size=3)
        pm.Normal("y", pm.Normal("mu"), observed=y, total_size=9)
    dt = result_of(mu=np.random.default_rng(0).normal(size=(2, 50)))
    mean = dt["posterior"].mean(("chain", "draw"))
    assert "mu" in gradient_noise(model, mean, batches=32, random_seed=1)

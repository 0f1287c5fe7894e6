"""The kernel Stein discrepancy of draws whose law is known."""

import numpy as np
import pymc as pm
import pytest
import xarray as xr

from helpers.conjugate import normal_means
from helpers.results import result_of, ten_normal_draws
from helpers.z_scores import STANDARD_ERRORS, mean_and_error
from pymc_sgmcmc.diagnostics import ksd, stein_thinning


def test_ksd_separates_sds_ten_percent_too_wide_from_exact_ones(ten_normals):
    # Eight replicates of 800 independent draws, as chains
    exact, wide = (
        ksd(ten_normal_draws(i, widening, 8, 800), ten_normals, draws=800)
        for i, widening in enumerate([1.0, 1.1])
    )
    (low, low_error), (high, high_error) = mean_and_error(exact["ksd"]), mean_and_error(wide["ksd"])
    # Seen: 0.159 ± 0.001 and 0.188 ± 0.002
    assert high - low > 8 * np.hypot(low_error, high_error)
    assert exact["ksd"].max() < wide["ksd"].min()
    # KSD² of exact draws has the expectation that is reported
    square, error = mean_and_error(exact["ksd_squared"])
    assert abs(square - np.mean(exact["expected"].values ** 2)) < STANDARD_ERRORS * error
    assert wide["ksd_all"] > 1.3 * wide["expected_all"]
    assert exact["ksd_all"] < 1.1 * exact["expected_all"]


def test_ksd_of_bounded_variables_is_that_of_exact_draws():
    with pm.Model() as model:
        pm.Gamma("g", 2.0, 3.0)
        pm.Beta("b", 2.0, 3.0)
    rng = np.random.default_rng(3)
    shape = (16, 150)
    exact = {"g": rng.gamma(2.0, 1 / 3.0, size=shape), "b": rng.beta(2.0, 3.0, size=shape)}
    for scale in ("covariance", "median"):
        found = ksd(result_of(**exact), model, scale=scale, random_seed=0)
        square, error = mean_and_error(found["ksd_squared"])
        assert abs(square - np.mean(found["expected"].values ** 2)) < STANDARD_ERRORS * error
        # What the constrained density without its Jacobian would have as exact draws
        shifted = {"g": rng.gamma(1.0, 1 / 3.0, size=shape), "b": rng.beta(1.0, 2.0, size=shape)}
        far = ksd(result_of(**shifted), model, scale=scale, random_seed=0)
        assert far["ksd"].min() > 2 * found["ksd"].max()


def test_minibatch_ksd_is_unbiased():
    data = np.random.default_rng(4).normal(1.0, 2.0, size=(500, 2))
    model, mean, sd = normal_means(data, 2.0, batch_size=50)
    e = np.random.default_rng(5).normal(size=(16, 150, 2))
    for widening, draws in ((1.0, e), (2.0, 2.0 * e)):
        result = result_of(mu=mean + sd * draws)
        noisy = ksd(result, model, batches=2, random_seed=6)
        again = ksd(result, model, batches=2, random_seed=6)
        np.testing.assert_array_equal(noisy["ksd_squared"], again["ksd_squared"])
        # Each chain has batches of its own, so that the difference averages out
        full = ksd(result, model)
        n = 150
        without_diagonal = (n * full["ksd_squared"] - full["expected"] ** 2 * n) / (n - 1)
        difference, error = mean_and_error(noisy["ksd_squared"] - without_diagonal)
        assert abs(difference) < STANDARD_ERRORS * error
        assert (noisy["ksd_all"] > 2 * noisy["expected_all"]) == (widening == 2.0)
    with pm.Model(coords={"row": range(500), "column": range(2)}) as unchanged:
        mu = pm.Normal("mu", 0, 10, shape=2)
        pm.Normal("y", mu, 2.0, observed=data, dims=("row", "column"))
    of_rows = {"batch_size": 50, "batch_dim": "row"}
    by_dim = ksd(result, unchanged, batches=2, random_seed=6, **of_rows)
    np.testing.assert_array_equal(by_dim["ksd_squared"], noisy["ksd_squared"])
    by_rows = stein_thinning(result, 9, unchanged, **of_rows)
    assert not ksd(result, unchanged).equals(by_dim)
    thinned = stein_thinning(result, 9, unchanged), by_rows
    one, other = (of["posterior_thinned"].to_dataset() for of in thinned)
    xr.testing.assert_allclose(one, other, rtol=1e-9)


@pytest.mark.slow
def test_numba_gives_the_same(ten_normals):
    dt = ten_normal_draws(15, 1.1, 2, 100)
    one, other = (ksd(dt, ten_normals, backend=backend) for backend in ("jax", "numba"))
    xr.testing.assert_allclose(one, other, rtol=1e-9)


def test_draws_count_by_their_weights():
    """Draws of two laws, of which those of the wrong one have a hundredth of the weight."""
    rng = np.random.default_rng(0)
    with pm.Model() as model:
        pm.Normal("x")
    wrong = np.arange(500) < 250
    x = rng.normal(size=(2, 500)) + 3 * wrong
    group = xr.Dataset({"x": (("chain", "draw"), x)})
    weight = xr.Dataset(
        {"weight": (("chain", "draw"), np.where(wrong, 0.01, 1.0) * np.ones((2, 1)))}
    )
    unlike = xr.DataTree.from_dict({"posterior": group, "sample_stats": weight})
    alike = xr.DataTree.from_dict({"posterior": group, "sample_stats": weight * 0 + 2.0})
    found = {
        name: ksd(dt, model, reference=unlike) for name, dt in (("own", unlike), ("one", alike))
    }
    # Half of the draws count, each about twice
    assert found["own"]["ksd_all"] < 3 * found["own"]["expected_all"]
    assert found["one"]["ksd_all"] > 5 * found["own"]["ksd_all"]
    assert found["one"].equals(ksd(group, model, reference=unlike))
    # Also where the group is named in another way, or one of both was cut
    assert found["own"].equals(ksd(unlike["posterior"], model, reference=unlike))
    labels = {"chain": [0, 1], "draw": np.arange(500)}
    of_labels = unlike.map_over_datasets(lambda x: x.assign_coords(labels) if x.sizes else x)
    cut = of_labels.copy()
    cut["posterior"] = of_labels["posterior"].to_dataset().isel(draw=slice(100, None))
    both = of_labels.isel(draw=slice(100, None))
    assert ksd(cut, model, reference=unlike).equals(ksd(both, model, reference=unlike))
    without_labels = unlike.copy()
    without_labels["posterior"] = group.isel(draw=slice(100, None))
    with pytest.raises(ValueError, match=r"have different draws, and no labels.*Cut both alike"):
        ksd(without_labels, model)


def test_a_variable_named_weight_is_no_weight_of_its_own_draws():
    with pm.Model() as model:
        pm.HalfNormal("weight")
    draws = np.abs(np.random.default_rng(0).normal(size=(2, 50)))
    drawn = xr.Dataset({"weight": (("chain", "draw"), draws)})
    prior = xr.DataTree.from_dict({"prior": drawn})
    assert ksd(prior, model, group="prior").equals(ksd(drawn, model))

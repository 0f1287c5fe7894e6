"""Gradient noise against that of a conjugate model."""

import numpy as np
import pymc as pm
import pytest
import xarray as xr

from helpers.conjugate import slopes_of
from helpers.results import result_of
from helpers.z_scores import STANDARD_ERRORS
from pymc_sgmcmc.diagnostics import gradient_noise
from pymc_sgmcmc.diagnostics.model_density import Standard
from pymc_sgmcmc.diagnostics.noise_report import _variances


def regression(rows, batch_size):
    rng = np.random.default_rng(8)
    X = rng.normal(size=(rows, 2)) * [1.0, 3.0]
    Y = X @ [1.0, -0.5] + 2.0 * rng.normal(size=rows)
    with pm.Model(coords={"feature": ["age", "height"]}) as model:
        x, y = pm.Minibatch(X, Y, batch_size=batch_size)
        b = pm.Normal("b", 0.0, 10.0, dims="feature")
        pm.Normal("y", x @ b, 2.0, observed=y, total_size=rows)
    return model, X, Y


def test_gradient_noise_is_that_of_a_conjugate_normal_model():
    rows, batch_size, batches = 20_000, 40, 4096
    model, X, Y = regression(rows, batch_size)
    mean, covariance = slopes_of(X, Y, 2.0)
    sd = np.sqrt(np.diag(covariance))
    point, centre = mean + sd * np.array([2.0, -1.0]), mean

    # Rows without replacement: N²/B (1 − B/N) times the covariance of a row's gradient
    factor = rows**2 / batch_size * (1 - batch_size / rows)
    of_rows = [X * ((X @ point - Y) / 4)[:, None], X * (X @ (point - centre) / 4)[:, None]]
    covariances = [factor * np.cov(g, rowvar=False) for g in of_rows]
    exact = np.array([np.diag(covariance) * np.diag(c) for c in covariances])
    largest = [np.linalg.eigvals(covariance @ c).real.max() for c in covariances]

    noise = gradient_noise(
        model, {"b": point}, centre={"b": centre}, batches=batches, random_seed=9
    )
    assert noise["b"].dims == ("estimator", "feature")
    assert list(noise["feature"].values) == ["age", "height"]
    error = noise.attrs["relative_error"]
    assert error == pytest.approx(0.029, abs=0.001)
    np.testing.assert_allclose(noise["b"], exact, rtol=STANDARD_ERRORS * error)
    # The largest comes from half of the batches
    np.testing.assert_allclose(
        noise["largest_variance"], largest, rtol=STANDARD_ERRORS * 1.5 * error
    )
    k = noise["suggested_batches"].values
    share = batch_size / rows

    def left(k):
        # K batches that share no rows
        return noise["largest_variance"].values * (1 - k * share) / (k * (1 - share))

    assert (left(k) <= 1.5).all()
    assert (left(np.maximum(k - 1, 1))[k > 1] > 1.5).all()
    np.testing.assert_array_equal(noise["suggested_batch_size"], k * batch_size)
    assert noise.attrs["gradient"] == "control_variates"

    # Of the unchanged model the same numbers
    with pm.Model() as unchanged:
        x = pm.Data("x", X, dims=("obs", "feature"))
        pm.Normal("y", x @ pm.Normal("b", 0.0, 10.0, dims="feature"), 2.0, observed=Y, dims="obs")
    by_dim = gradient_noise(
        unchanged, {"b": point}, centre={"b": centre}, batches=batches, random_seed=9,
        batch_size=batch_size, batch_dim="obs",
    )  # fmt: skip
    np.testing.assert_array_equal(by_dim["b"], noise["b"])

    # From draws: the same unit and about the same places
    draws = np.random.default_rng(10).multivariate_normal(mean, covariance, size=(2, 500))
    dt = result_of(b=draws)
    from_draws = gradient_noise(model, dt, batches=batches, random_seed=9)
    unit = draws.reshape(-1, 2).var(axis=0, ddof=1)
    plain = unit * np.diag(covariances[0])
    np.testing.assert_allclose(from_draws["b"][0], plain, rtol=STANDARD_ERRORS * error + 0.05)
    # With control variates, about (d + 1)/B where the anchor is the mean
    assert 0.01 < from_draws["largest_variance"][1] < 1


def test_gradient_noise_of_effects_that_sum_to_zero():
    """They have as many coordinates as labels but one."""
    rng = np.random.default_rng(1)
    with pm.Model(coords={"group": list("abc")}) as model:
        effects = pm.ZeroSumNormal("effects", dims="group")
        y, group = pm.Minibatch(rng.normal(size=60), np.arange(60, dtype="int32") % 3, batch_size=6)
        pm.Normal("y", effects[group], observed=y, total_size=60)
    noise = gradient_noise(model, {"effects": np.zeros(3)}, random_seed=2)
    assert noise["effects"].dims == ("estimator", "effects_unconstrained_dim_0")
    assert noise["effects"].shape == (2, 2)


class Independent:
    """Batches whose gradients are independent standard normals in 50 coordinates."""

    dimension = 50

    def shuffle(self, rng):
        pass

    def batch_gradients(self, places, anchor, rng):
        return rng.standard_normal((2, *places.shape))


def test_the_noisiest_direction_of_few_batches_is_measured_apart():
    places, rng = np.zeros((8, 50)), np.random.default_rng(1)
    whole = Standard(np.zeros(50), np.eye(50))
    tops = [_variances(Independent(), places, places[0], whole, 32, rng)[1] for _ in range(20)]
    # The largest of 50 variances by the 8 degrees of freedom of half of the batches
    expected = np.max(rng.chisquare(8, (1000, 50)) / 8, axis=1)
    error = expected.std() / np.sqrt(np.size(tops))
    assert abs(np.mean(tops) - expected.mean()) < 4 * error


def test_no_more_batches_are_suggested_than_the_data_have():
    """Counts of five times the variance of the model's: two in three of the rows are enough."""
    y = np.random.default_rng(0).negative_binomial(2, 0.2, size=1000).astype("int32")
    with pm.Model() as model:
        a = pm.Normal("a", 0, 5)
        batch = pm.Minibatch(y, batch_size=100)
        pm.Poisson("y", pm.math.exp(a), observed=batch, total_size=1000)
    noise = gradient_noise(model, {"a": np.log(y.mean())}, random_seed=1, batches=4096)
    # A tenth of the rows, of gradients whose variance is that of the counts
    exact = 1000**2 / 100 * 0.9 * y.var() / (1000 * y.mean())
    assert noise["largest_variance"].values[0] == pytest.approx(exact, rel=0.2)
    exact = exact / 0.9
    k = np.arange(1, 11)
    assert noise["suggested_batches"].values[0] == pytest.approx(
        np.argmax(exact / k * (1 - k / 10) <= 1.5) + 1, abs=1
    )


def test_the_curvature_of_a_kinked_density_is_that_over_its_bulk():
    """A Laplace likelihood is flat between its rows: σ² is (N²/B) (1 − B/N) over 2N f(0) = N."""
    y = np.random.default_rng(0).laplace(size=1000)
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 10)
        batch = pm.Minibatch(y, batch_size=100)
        pm.Laplace("y", mu, 1, observed=batch, total_size=1000)
    for seed in range(3):
        noise = gradient_noise(model, {"mu": np.median(y)}, random_seed=seed)
        assert noise["largest_variance"].values[0] == pytest.approx(9.0, rel=0.4)


def test_noise_is_that_of_a_chain_at_its_temperature():
    """U/T has gradients of variance 1/T², and the posterior T times the variance."""
    model, X, Y = regression(1000, 100)
    mean, _ = slopes_of(X, Y, 2.0)
    alone, cold = (
        gradient_noise(model, {"b": mean}, temperature=T, random_seed=1) for T in (1.0, 0.1)
    )
    ratio = cold["largest_variance"].values[0] / alone["largest_variance"].values[0]
    assert ratio == pytest.approx(10, rel=0.01)
    # A control variate at the draws' own distance has the factor T of their variance less
    assert cold["suggested_batches"].values[0] > alone["suggested_batches"].values[0]


def test_too_few_draws_for_a_covariance_are_told():
    model, X, Y = regression(2000, 40)
    mean, covariance = slopes_of(X, Y, 2.0)
    draws = np.random.default_rng(0).multivariate_normal(mean, covariance, size=(1, 9))
    dims = "chain", "draw", "feature"
    with pytest.warns(UserWarning, match=r"has 9 draws, too few .* of 2 parameters.* with 10 dr"):
        gradient_noise(model, xr.Dataset({"b": (dims, draws)}), batches=64, random_seed=1)

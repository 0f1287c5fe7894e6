"""Diagnostics against laws that are known in closed form; errors of all estimates are computed."""

import logging

import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
import pymc.distributions.transforms as tr
import pytest
import xarray as xr

import pymc_sgmcmc as sg

from pymc_sgmcmc.compiling import INTERPRETER
from pymc_sgmcmc.diagnostics import (
    bias_report,
    gradient_noise,
    ksd,
    plot_bias_report,
    stein_thinning,
)
from pymc_sgmcmc.diagnostics.model_density import density_of
from pymc_sgmcmc.diagnostics.over_draws import constrained
from pymc_sgmcmc.diagnostics.stein_kernel import SteinKernel
from pymc_sgmcmc.testing import UNTUNED

# Monte-Carlo standard errors that are allowed
ERRORS = 4.0


def result_of(**arrays):
    """A result with these draws, shape (chain, draw, ...)."""
    posterior = {
        name: (("chain", "draw", *[f"{name}_dim_{i}" for i in range(x.ndim - 2)]), x)
        for name, x in arrays.items()
    }
    return xr.DataTree.from_dict({"posterior": xr.Dataset(posterior)})


def mean_and_error(values):
    values = np.asarray(values)
    return values.mean(), values.std(ddof=1) / np.sqrt(values.size)


# ------------------------------------------------------------------------- the Stein kernel


@pytest.mark.parametrize("squared_length", [1.0, 2.5])
def test_stein_kernel_is_the_operator_on_the_multiquadric(squared_length):
    rng = np.random.default_rng(0)
    x, s = rng.normal(size=(2, 5, 3))
    found = SteinKernel(x, s, squared_length).rows(slice(0, 5))

    def k(a, b):
        return (1 + np.sum((a - b) ** 2, axis=-1) / squared_length) ** -0.5

    e = 1e-4 * np.eye(3)

    def at(i, j):
        a, b = x[i], x[j]
        of_a = (k(a + e, b) - k(a - e, b)) / 2e-4
        of_b = (k(a, b + e) - k(a, b - e)) / 2e-4
        both = k(a + e, b + e) - k(a + e, b - e) - k(a - e, b + e) + k(a - e, b - e)
        return both.sum() / 4e-8 + of_a @ s[j] + of_b @ s[i] + k(a, b) * s[i] @ s[j]

    expected = [[at(i, j) for j in range(5)] for i in range(5)]
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    kernel = SteinKernel(x, s, squared_length)
    np.testing.assert_allclose(kernel.diagonal(), np.diag(found), rtol=1e-12)
    blocks = np.concatenate([block for _, block in kernel.blocks()])
    np.testing.assert_allclose(blocks, found, rtol=1e-12)


# ---------------------------------------------------------------------------------- scores


def bounded_model(minibatched):
    data = np.random.default_rng(1).normal(1.0, 2.0, size=20)
    with pm.Model() as model:
        # 20 rows in blocks of 7: the last one wraps round
        y = pm.Minibatch(data, batch_size=7) if minibatched else data
        sigma = pm.HalfNormal("sigma", 2.0)
        lower = pm.Beta("lower", 2.0, 3.0)
        inside = pm.Uniform("inside", lower, lower + 1 + sigma, shape=2)
        shares = pm.Dirichlet("shares", [1.0, 2.0, 3.0], shape=(2, 3))
        levels = pm.Normal("levels", [-1.0, 0.0, 2.0], 1.0, transform=tr.ordered)
        mu = inside.sum() + (shares * levels).sum()
        total_size = 20 if minibatched else None
        pm.Normal("y", mu, sigma, observed=y, total_size=total_size)
    return model


def test_scores_of_bounded_variables_have_the_jacobian():
    twin = bounded_model(minibatched=False)
    d, rng = 11, np.random.default_rng(2)
    shapes = [(), (), (2,), (2, 2), (3,)]
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
    names = [value.name for value in twin.value_vars]

    def split(flat):
        parts = np.split(flat, ends[:-1], axis=-1)
        return {
            name: part.reshape((*flat.shape[:-1], *shape))
            for name, part, shape in zip(names, parts, shapes, strict=True)
        }

    # Every transform twice: to the constrained draws, and back for the scores
    phi = np.sort(rng.normal(size=(6, d)), axis=1)
    draws = constrained(twin, split(phi))
    density = density_of(bounded_model(minibatched=True))
    positions = density.positions(draws)
    np.testing.assert_allclose(positions, phi, rtol=1e-9, atol=1e-9)

    logp = pm.compile(twin.value_vars, twin.logp(jacobian=True), mode=INTERPRETER)

    def at(flat):
        return float(logp(*split(flat).values()))

    step = 1e-5 * np.eye(d)
    scores = [[(at(x + e) - at(x - e)) / 2e-5 for e in step] for x in phi]
    np.testing.assert_allclose(-density.gradients(positions), scores, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(-density.potential(positions), [at(x) for x in phi], rtol=1e-10)


# ------------------------------------------------------------------------------------- KSD


SDS = np.geomspace(0.01, 100, 10)


@pytest.fixture(scope="module")
def ten_normals():
    """Ten independent normal variables of very different scales."""
    with pm.Model() as model:
        pm.Normal("x", 3.0, SDS, shape=10)
    return model


def ten_normal_draws(seed, widening, chains, draws):
    e = np.random.default_rng(seed).normal(size=(chains, draws, 10))
    return result_of(x=3.0 + widening * SDS * e)


def test_ksd_separates_sds_ten_percent_too_wide_from_exact_ones(ten_normals):
    # Eight replicates of 800 independent draws, as chains
    exact, wide = (
        ksd(ten_normal_draws(i, widening, 8, 800), ten_normals, draws=800)
        for i, widening in enumerate([1.0, 1.1])
    )
    (low, low_error), (high, high_error) = mean_and_error(exact["ksd"]), mean_and_error(wide["ksd"])
    # Seen: 0.159 ± 0.001 and 0.188 ± 0.002
    print(f"KSD of exact draws {low:.4f} ± {low_error:.4f}, wide {high:.4f} ± {high_error:.4f}")
    assert high - low > 8 * np.hypot(low_error, high_error)
    assert exact["ksd"].max() < wide["ksd"].min()
    # KSD² of exact draws has the expectation that is reported
    square, error = mean_and_error(exact["ksd_squared"])
    assert abs(square - np.mean(exact["expected"].values ** 2)) < ERRORS * error
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
        assert abs(square - np.mean(found["expected"].values ** 2)) < ERRORS * error
        # What the constrained density without its Jacobian would have as exact draws
        shifted = {"g": rng.gamma(1.0, 1 / 3.0, size=shape), "b": rng.beta(1.0, 2.0, size=shape)}
        far = ksd(result_of(**shifted), model, scale=scale, random_seed=0)
        assert far["ksd"].min() > 2 * found["ksd"].max()


def normal_mean(rows=500, batch_size=50):
    data = np.random.default_rng(4).normal(1.0, 2.0, size=(rows, 2))
    with pm.Model() as model:
        y = pm.Minibatch(data, batch_size=batch_size)
        mu = pm.Normal("mu", 0.0, 10.0, shape=2)
        pm.Normal("y", mu, 2.0, observed=y, total_size=rows)
    precision = 1 / 100 + rows / 4
    return model, data.sum(axis=0) / 4 / precision, 1 / np.sqrt(precision)


def test_minibatch_ksd_is_unbiased():
    model, mean, sd = normal_mean()
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
        assert abs(difference) < ERRORS * error
        assert (noisy["ksd_all"] > 2 * noisy["expected_all"]) == (widening == 2.0)


# --------------------------------------------------------------------------- Stein thinning


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


# --------------------------------------------------------------------------- gradient noise


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
    covariance = np.linalg.inv(np.eye(2) / 100 + X.T @ X / 4)
    mean = covariance @ (X.T @ Y) / 4
    sd = np.sqrt(np.diag(covariance))
    point, centre = mean + sd * np.array([2.0, -1.0]), mean

    # Rows without replacement: N²/B (1 − B/N) times the covariance of a row's gradient
    factor = rows**2 / batch_size * (1 - batch_size / rows)
    of_rows = [
        X * ((X @ point - Y) / 4)[:, None],
        X * (X @ (point - centre) / 4)[:, None],
    ]
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
    print("relative error of σ²:", (noise["b"].values / exact - 1).round(3), f"± {error:.3f}")
    np.testing.assert_allclose(noise["b"], exact, rtol=ERRORS * error)
    # The largest comes from half of the batches
    np.testing.assert_allclose(noise["largest_variance"], largest, rtol=ERRORS * 1.5 * error)
    k = noise["suggested_batches"].values
    assert (noise["largest_variance"] <= 1.5 * k).all()
    assert (noise["largest_variance"] > 1.5 * (k - 1)).all() or k.min() == 1
    np.testing.assert_array_equal(noise["suggested_batch_size"], k * batch_size)
    assert noise.attrs["gradient"] == "control_variates"

    # From draws: the same unit and about the same places
    draws = np.random.default_rng(10).multivariate_normal(mean, covariance, size=(2, 500))
    dt = result_of(b=draws)
    from_draws = gradient_noise(model, dt, batches=batches, random_seed=9)
    unit = draws.reshape(-1, 2).var(axis=0, ddof=1)
    plain = unit * np.diag(covariances[0])
    np.testing.assert_allclose(from_draws["b"][0], plain, rtol=ERRORS * error + 0.05)
    # With control variates, about (d + 1)/B where the anchor is the mean
    assert 0.01 < from_draws["largest_variance"][1] < 1


# ------------------------------------------------------------------------------ bias_report


def test_bias_report_finds_the_known_bias_of_euler():
    with pm.Model() as model:
        pm.Normal("x", 0.0, 1.0, shape=20)
        step = sg.SGLD(step_size=0.4, **{**UNTUNED, "thin": 5})
    report = bias_report(step, model, draws=500, chains=2, random_seed=11)
    # Var = 2 / (2 − h)
    sds = np.sqrt([2 / 1.6, 2 / 1.8])
    for name, expected in (("estimate", sds[0]), ("half", sds[1]), ("bias", 2 * (sds[0] - sds[1]))):
        found, error = mean_and_error(report[name].sel(statistic="sd"))
        print(f"{name}: {found:.4f} ± {error:.4f}, exact {expected:.4f}")
        assert abs(found - expected) < ERRORS * error
    # The standard errors are those that twenty coordinates show
    bias, se = report["bias"], report["se"]
    spread = bias.std("parameter", ddof=1) / np.sqrt((se**2).mean("parameter"))
    assert (np.abs(spread - 1) < ERRORS / np.sqrt(2 * 19)).all()
    assert not report["flagged"].sel(statistic="mean").any()
    assert report.attrs["order"] == 1
    assert step.requested.step_size.h == 0.4


@pytest.fixture(scope="module")
def scale_regression():
    rng = np.random.default_rng(12)
    X = rng.normal(size=(5000, 2))
    Y = X @ [1.0, 2.0] + rng.normal(size=5000)
    with pm.Model(coords={"feature": ["age", "height"]}) as model:
        x, y = pm.Minibatch(X, Y, batch_size=50)
        beta = pm.Normal("beta", 0.0, 10.0, dims="feature")
        sigma = pm.HalfNormal("sigma", 1.0)
        pm.Normal("y", x @ beta, sigma, observed=y, total_size=5000)
    return model


def test_bias_report_flags_naive_sgld(scale_regression, caplog):
    # σ² = N/B = 100 in units of posterior sds, h = 0.02: hσ²/2 = 1, variances doubled
    report = bias_report(
        sg.SGLD, scale_regression, step_size=0.02 / 5000, draws=500, tune=100, chains=2,
        random_seed=13, **{**UNTUNED, "thin": 50},
    )  # fmt: skip
    table = report.sel(statistic="sd").to_dataframe()
    print(table.round(4))
    assert list(report["parameter"].values) == ["beta[age]", "beta[height]", "sigma"]
    assert report["flagged"].sel(statistic="sd").all()
    assert (report["relative"].sel(statistic="sd") > 0.2).all()
    assert report.attrs["step_size"] == pytest.approx(0.02 / 5000)

    figure = plot_bias_report(report, largest=2).viz["figure"].item()
    sd_axis = figure.axes[1]
    assert len(sd_axis.get_yticks()) == 2
    assert "sd" in sd_axis.get_title()
    plt.close(figure)


@pytest.mark.slow
def test_bias_report_does_not_flag_the_default(scale_regression, caplog):
    with caplog.at_level(logging.ERROR):
        report = bias_report(sg.CoRVSGLD, scale_regression, draws=500, chains=2, random_seed=14)
    print(report.sel(statistic="sd").to_dataframe().round(4))
    assert not report["flagged"].any()
    assert (
        np.abs(report["relative"]) < ERRORS * report["se"] / report["half"].sel(statistic="sd")
    ).all()
    assert report.attrs["step_size"] == pytest.approx(0.2)


# ------------------------------------------------------------------------------- bad input


@pytest.fixture(scope="module")
def plain_model():
    with pm.Model() as model:
        pm.Normal("x", shape=2)
    return model


GOOD = result_of(x=np.zeros((1, 10, 2)))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda m: ksd({}, m), TypeError, "^result must be the DataTree"),
        (lambda m: ksd(GOOD), TypeError, "^model is missing"),
        (lambda m: ksd(GOOD, "m"), TypeError, "^model must be a pm.Model"),
        (lambda m: ksd(GOOD, m, group="prior"), ValueError, "no group 'prior'. It has 'posterior'"),
        (lambda m: ksd(result_of(y=np.zeros((1, 9))), m), ValueError, "no variable 'x'"),
        (lambda m: ksd(result_of(x=np.zeros((1, 9, 3))), m), ValueError, r"shape \(3,\)"),
        (lambda m: ksd(GOOD, m, scale="sd"), ValueError, "^scale must be one of"),
        (lambda m: ksd(GOOD, m, draws=0), ValueError, "^draws must be an integer"),
        (lambda m: ksd(GOOD, m, batches=0), ValueError, "^batches must be an integer"),
        (lambda m: ksd(GOOD, m, batches=1), ValueError, "has no pm.Minibatch"),
        (lambda m: ksd(GOOD, m, backend="c"), ValueError, "^backend must be one of"),
        (lambda m: ksd(GOOD, m, scale="median"), ValueError, "^scale='median' needs draws"),
        (lambda m: ksd(GOOD["posterior"].to_dataset().isel(chain=0), m), ValueError, "dimensions"),
        (lambda m: stein_thinning(GOOD, 11, m), ValueError, "^size=11 draws cannot be chosen"),
        (lambda m: stein_thinning(GOOD, 1.5, m), ValueError, "^size must be an integer"),
        (lambda m: stein_thinning(GOOD["posterior"].to_dataset(), 5, m), TypeError, "^result must"),
        (lambda m: gradient_noise(m, {"x": [0.0, 0.0]}), ValueError, "no pm.Minibatch"),
        (lambda m: gradient_noise(m, {}), ValueError, "^point has no value for the variable 'x'"),
        (lambda m: gradient_noise(m, {"x": 0.0}), ValueError, "^point has 'x' with the shape"),
        (lambda m: gradient_noise(m, 3), TypeError, "^point must be a result"),
        (lambda m: gradient_noise(m, GOOD, largest=0), ValueError, "^largest must be a positive"),
        (lambda m: gradient_noise(m, GOOD, batches=3), ValueError, "^batches must be at least 16"),
        (lambda m: bias_report(sg.FLA, m), NotImplementedError, "FLA with alpha=1.8"),
        (lambda m: bias_report(pm.NUTS, m), TypeError, "^step must be a step method of this"),
        (lambda m: bias_report("SGLD", m), TypeError, "^step must be a step method of this"),
        (lambda m: bias_report(sg.SGLD, m, order=3), ValueError, "^order must be 1 or 2"),
        (lambda m: bias_report(sg.SGLD, m, draws=5), ValueError, "^draws=5 of chains=4"),
        (lambda m: bias_report(sg.SGLD, m, tolerance=0), ValueError, "^tolerance must be"),
        (lambda m: bias_report(sg.SGLD, m, stepsize=1), TypeError, "no argument 'stepsize'"),
        (lambda m: bias_report(sg.SGLD, m, step_size=sg.polynomial(1.0)), ValueError, "no half"),
        (lambda m: bias_report(sg.SGLD(model=m), m, thin=3), TypeError, "made already"),
        (lambda m: bias_report(sg.SGLD(model=m), pm.Model()), ValueError, "another model"),
        (lambda m: plot_bias_report(GOOD), TypeError, "^report must be the Dataset"),
    ],
)
def test_bad_input_is_an_error_that_names_the_cure(plain_model, call, error, message):
    with pytest.raises(error, match=message):
        call(plain_model)


def test_models_without_scores_are_refused():
    with pm.Model() as discrete:
        pm.Bernoulli("z", 0.5)
        pm.Normal("x", shape=2)
    draws = result_of(x=np.zeros((1, 10, 2)), z=np.zeros((1, 10), dtype=int))
    with pytest.raises(NotImplementedError, match="'z' is discrete"):
        ksd(draws, discrete)
    with pytest.raises(ValueError, match="leaves out the variable 'z'"):
        bias_report(sg.SGLD, discrete)
    with pm.Model() as circular:
        pm.VonMises("angle", 0.0, 1.0)
    angle = np.random.default_rng(0).uniform(-1, 1, size=(1, 10))
    with pytest.raises(NotImplementedError, match="'angle' is circular"):
        stein_thinning(result_of(angle=angle), 5, circular)


def test_draws_outside_the_support_are_named():
    with pm.Model() as model:
        pm.HalfNormal("s")
    draws = np.abs(np.random.default_rng(0).normal(size=(1, 10)))
    draws[0, 3] = -1.0
    with pytest.raises(ValueError, match="1 of 10 draws of 's' are not inside its support"):
        ksd(result_of(s=draws), model)


def test_a_model_with_new_data_is_compiled_anew():
    with pm.Model() as model:
        data = pm.Data("data", np.zeros(100))
        mu = pm.Normal("mu")
        pm.Normal("y", mu, observed=data)
    first = density_of(model)
    assert density_of(model) is first
    x = np.zeros((1, 1))
    assert first.gradients(x)[0, 0] == pytest.approx(0.0)
    with model:
        pm.set_data({"data": np.ones(100)})
    assert density_of(model).gradients(x)[0, 0] == pytest.approx(-100.0)


@pytest.mark.slow
def test_numba_gives_the_same(ten_normals):
    dt = ten_normal_draws(15, 1.1, 2, 100)
    one, other = (ksd(dt, ten_normals, backend=backend) for backend in ("jax", "numba"))
    xr.testing.assert_allclose(one, other, rtol=1e-9)

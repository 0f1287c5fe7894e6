"""Every sampler hits targets with known laws: the matrix, reductions, exact laws."""

from functools import partial

import numpy as np
import pymc as pm
import pytest

from scipy import stats

import pymc_sgmcmc as sg

from pymc_sgmcmc.testing import (
    UNTUNED,
    Moment,
    Target,
    check,
    check_sampler,
    correlated_gaussian,
    gaussian,
    run_chain,
)


def euler_variance(h, noise):
    return (2 + h * noise) / (2 - h)


def lm_variance(h, noise):
    return 1 + h * noise / (2 - h)


def thermostat_variance(h, noise):
    # The thermostat absorbs noise that does not depend on the position
    return 1.0


LANGEVIN = {"variance": euler_variance, "euler": True}
LM = {"variance": lm_variance}
THERMOSTAT = {"variance": thermostat_variance, "unknown": 0.2, "patience": 4.0}
SAMPLERS = {
    "SGLD": (sg.SGLD, LANGEVIN),
    "CoRVSGLD-euler": (partial(sg.CoRVSGLD, integrator="euler"), LANGEVIN),
    "CoRVSGLD-lm": (sg.CoRVSGLD, LM),
    "FLA-2": (partial(sg.FLA, alpha=2.0), LANGEVIN),
    "SMLD": (sg.SMLD, {**LM, "transforms": "mirror"}),
    "MSGNHT": (sg.MSGNHT, THERMOSTAT),
}


# Others are the same draw for draw, which test_reductions_draw_for_draw sees, but for SMLD's
# maps, which test_dirichlet sees
def test_matrix_jax():
    make_step, law = SAMPLERS["CoRVSGLD-lm"]
    check_sampler(make_step, backends=["jax"], dimensions=(1, 100), **law)


def test_thermostat_is_exact_on_a_gaussian():
    make_step, law = SAMPLERS["MSGNHT"]
    target = correlated_gaussian(10, law["variance"], 0.1, unknown=law["unknown"])
    check(target, make_step, step_size=0.1, patience=law["patience"], backend="jax")


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLERS)
def test_matrix_jax_in_all_dimensions(name):
    make_step, law = SAMPLERS[name]
    check_sampler(make_step, backends=["jax"], **law)


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLERS)
def test_matrix_numba(name):
    make_step, law = SAMPLERS[name]
    check_sampler(make_step, backends=["numba"], **law)


@pytest.mark.parametrize("h", [0.2, 0.4])
def test_lm_is_exact_where_euler_is_too_wide(h):
    for make_step, variance in ((sg.CoRVSGLD, lm_variance), (sg.SGLD, euler_variance)):
        for target in (gaussian(100, variance, h), correlated_gaussian(10, variance, h)):
            check(target, make_step, step_size=h, draws=200)
    assert euler_variance(0.2, 0) == pytest.approx(1.11, abs=0.005)
    assert euler_variance(0.4, 0) == 1.25


@pytest.mark.slow
def test_euler_thermostat_has_its_first_order_bias():
    # x² on N(0, 1) at Q = 1: -0.022 at h = 0.05, -0.043 at h = 0.1
    step = partial(sg.MSGNHT, integrator="euler", thermostat_mass=1.0)
    for h, bias in ((0.05, -0.022), (0.1, -0.043)):
        target = gaussian(100, thermostat_variance, h)
        [_, square, _] = target.moments
        # The figures are known to half a unit of their last digit
        expected = Moment("x²", square.of, 1 + bias, 0.0005)
        check(Target(target.name, target.model, [expected]), step, step_size=h, patience=8.0)


def stable_scale(alpha, h):
    """σ of FLA's exact law SαS(σ) on N(0, 1)."""
    c = sg.FLA.drift_constant(alpha)
    return (h / (1 - (1 - h * c) ** alpha)) ** (1 / alpha)


@pytest.mark.parametrize(("alpha", "h"), [(1.2, 0.1), (1.5, 0.05), (1.5, 0.3), (1.8, 0.1)])
def test_fla_has_its_exact_stable_law(alpha, h):
    levels = np.array([0.05, 0.25, 0.5, 0.75, 0.95])
    law = stats.levy_stable(alpha, 0, scale=stable_scale(alpha, h))
    quantiles = law.ppf(levels)
    with pm.Model() as model:
        pm.Normal("x", 0, 1, shape=(20_000, 1))
    moments = [
        Moment(f"P(x < {q:.3f})", lambda x, q=q: (x < q).mean(axis=-1), level)
        for level, q in zip(levels, quantiles, strict=True)
    ]
    target = Target(f"N(0, 1), SαS α = {alpha}", model, moments)
    make_step = partial(sg.FLA, alpha=alpha, largest_drift=None, largest_jump=None)
    check(target, make_step, step_size=h, draws=20)


def test_tamed_fla_survives_where_the_untamed_diverges():
    with pm.Model() as model:
        x = pm.Flat("x", shape=50, initval=np.zeros(50))
        pm.Potential("quartic", -(x**4).sum() / 4)
    with model:
        tamed = sg.FLA(step_size=0.05, alpha=1.5, **UNTUNED)
        untamed = sg.FLA(
            step_size=0.05, alpha=1.5, largest_drift=None, largest_jump=None, **UNTUNED
        )
    draws = run_chain(model, tamed, burn=10, draws=100, seed=1)["x"]
    assert np.all(np.isfinite(draws))
    with pytest.raises(AssertionError, match="not finite"):
        run_chain(model, untamed, burn=10, draws=100, seed=1)


def mixed_model():
    rng = np.random.default_rng(3)
    data = rng.normal(1.0, 2.0, size=(300, 2))
    with pm.Model() as model:
        batch = pm.Minibatch(data, batch_size=50)
        mu = pm.Normal("mu", 0, 10, shape=2)
        pm.Normal("y", mu, 2.0, observed=batch, total_size=300)
    return model


def draws_of(model, make_step, **options):
    with model:
        step = make_step(step_size=1e-3, backend="jax", **UNTUNED, **options)
    return run_chain(model, step, burn=0, draws=20, seed=5)


def test_reductions_draw_for_draw():
    model = mixed_model()
    sgld = draws_of(model, sg.SGLD)
    same = [
        draws_of(model, sg.CoRVSGLD, integrator="euler"),
        draws_of(model, sg.CoRVSGLD, integrator="euler", transforms="model"),
        draws_of(model, sg.SMLD, integrator="euler"),
        draws_of(model, sg.FLA, alpha=2.0),
    ]
    for other in same:
        np.testing.assert_allclose(other["mu"], sgld["mu"], rtol=1e-12)
    lm = draws_of(model, sg.CoRVSGLD)
    assert not np.allclose(lm["mu"], sgld["mu"])


def dirichlet_moments(alpha):
    total = alpha.sum()
    means = alpha / total
    return [
        *[Moment(f"mean {i}", lambda x, i=i: x[..., i], m) for i, m in enumerate(means)],
        *[
            Moment(f"square {i}", lambda x, i=i: x[..., i] ** 2, a * (a + 1) / total / (total + 1))
            for i, a in enumerate(alpha)
        ],
        Moment(
            "product 0 1",
            lambda x: x[..., 0] * x[..., 1],
            alpha[0] * alpha[1] / total / (total + 1),
        ),
    ]


@pytest.mark.parametrize("transforms", ["mirror", pytest.param("model", marks=pytest.mark.slow)])
def test_dirichlet(transforms):
    alpha = np.array([2.0, 3.0, 5.0])
    with pm.Model() as model:
        pm.Dirichlet("x", np.tile(alpha, (2000, 1)))
    target = Target("Dirichlet(2, 3, 5)", model, dirichlet_moments(alpha), relaxation=4.0)
    check(target, sg.SMLD, step_size=0.05, transforms=transforms)
    check(target, sg.MSGNHT, step_size=0.1, transforms=transforms, patience=4.0)


def test_dirichlet_multinomial_with_minibatches():
    rng = np.random.default_rng(0)
    rows, categories = 400, 4
    labels = rng.choice(categories, p=[0.1, 0.2, 0.3, 0.4], size=rows)
    counts = np.eye(categories)[labels]
    alpha = np.array([0.5, 1.0, 1.0, 2.0])
    posterior = alpha + counts.sum(axis=0)
    with pm.Model() as model:
        x = pm.Dirichlet("x", alpha)
        batch = pm.Minibatch(counts.astype("int32"), batch_size=100)
        pm.Multinomial("y", n=1, p=x, observed=batch, total_size=rows)
        step = sg.SMLD(step_size=2e-4, **{**UNTUNED, "thin": 50})
    draws = run_chain(model, step, burn=200, draws=3000, seed=0)["x"]
    mean = posterior / posterior.sum()
    sd = np.sqrt(mean * (1 - mean) / (posterior.sum() + 1))
    batches = draws.reshape(30, 100, categories).mean(axis=1)
    error = batches.std(axis=0, ddof=1) / np.sqrt(30)
    # Gradient noise widens by h σ² / (2 - h) ~ 1 %: it moves means by far less than an error
    assert np.all(np.abs(draws.mean(axis=0) - mean) < 4 * error)
    np.testing.assert_allclose(draws.std(axis=0), sd, rtol=0.1)

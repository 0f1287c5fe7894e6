"""The maps inside PyMC models: densities, gradients, initial points."""

import numpy as np
import pymc as pm
import pymc.distributions.transforms as pymc_transforms
import pytensor.tensor as pt
import pytest

from pytensor.graph.replace import graph_replace
from scipy.integrate import simpson

import pymc_sgmcmc as sg

from helpers.modes import REWRITTEN
from pymc_sgmcmc import transforms as tr

DISTRIBUTIONS = {
    "Gamma": (
        lambda **k: pm.Gamma("x", 2.5, 1.5, **k),
        {"exp": tr.Exp(), "softplus": tr.Softplus()},
    ),
    "Gamma, shape below 1": (
        lambda **k: pm.Gamma("x", 0.8, 0.1, **k),
        {"softplus": tr.Softplus(7.25)},
    ),
    "Beta": (
        lambda **k: pm.Beta("x", 2.5, 3.5, **k),
        {"sigmoid": tr.Sigmoid(), "arctan": tr.Arctan(), "softsign": tr.Softsign()},
    ),
    "Uniform": (
        lambda **k: pm.Uniform("x", -1.0, 4.0, **k),
        {"sigmoid": tr.Sigmoid(-1, 4), "arctan": tr.Arctan(-1, 4), "softsign": tr.Softsign(-1, 4)},
    ),
    "TruncatedNormal, lower": (
        lambda **k: pm.TruncatedNormal("x", 1.0, 2.0, lower=0.5, **k),
        {"softplus": tr.Softplus(3.0, lower=0.5), "icll": tr.ICLL(lower=0.5)},
    ),
    "TruncatedNormal, upper": (
        lambda **k: pm.TruncatedNormal("x", 1.0, 2.0, upper=0.5, **k),
        {"softplus": tr.Softplus(0.5, upper=0.5), "exp": tr.Exp(upper=0.5)},
    ),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_density_agrees_with_pymcs(name):
    """log p(value) - log |dtheta/dvalue| is PyMC's density of theta; it integrates to 1."""
    make, maps = DISTRIBUTIONS[name]
    t = np.linspace(-7.2, 7.2, 601) if "Gamma" in name else np.linspace(-12, 12, 601)
    with pm.Model() as plain:
        rv = make(default_transform=None, shape=t.shape)
    theta, stretch = plain.value_vars[0], pt.vector("stretch", shape=t.shape)
    expected, outputs = plain.logp(sum=False)[0], []
    for transform in maps.values():
        with pm.Model() as model:
            make(default_transform=transform, shape=t.shape)
        (value,), (logp,) = model.value_vars, model.logp(sum=False)
        assert value.name == f"x_{transform.name}__"
        density = graph_replace(
            logp - transform.log_jac_det(value), {value: transform.forward(theta)}
        )
        outputs += [density, graph_replace(logp, {value: stretch})]
    function = pm.compile([theta, stretch], [expected, *outputs], mode=REWRITTEN)
    # sinh(t) to 1.5e5, as some tails are polynomial; to 670 where exp would overflow
    expected, *outputs = function(pm.draw(rv, random_seed=1, mode=REWRITTEN), np.sinh(t))
    for found, logp, label in zip(outputs[::2], outputs[1::2], maps, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12, err_msg=label)
        total = simpson(np.exp(logp) * np.cosh(t), x=t)  # t has a node at softsign's kink
        # PyMC keeps constants such as log(1.5) in float32; a tail beyond 8e4 has mass 6e-6
        assert abs(total - 1) < (2e-5 if label in ("arctan", "softsign") else 1e-7), label


@pytest.mark.parametrize("alpha", [[0.5, 2.0], [2.0, 3.0, 5.0], [0.4] * 10])
def test_dirichlet_density_agrees_with_pymcs(alpha):
    k = len(alpha)
    densities = []
    v = pt.matrix("v", shape=(5, k - 1))
    for transform in (pymc_transforms.simplex, tr.EntropicMirror()):
        with pm.Model() as model:
            pm.Dirichlet("x", alpha, shape=(5, k), default_transform=transform)
        densities.append((model.logp(sum=False)[0], model.value_vars[0]))
    theirs = graph_replace(densities[0][0], {densities[0][1]: v})
    ours = graph_replace(densities[1][0], {densities[1][1]: v + v.sum(-1, keepdims=True)})
    values = np.random.default_rng(2).normal(size=(5, k - 1))
    found, expected = pm.compile([v], [ours + np.log(k), theirs], mode=REWRITTEN)(values)
    assert found.shape == (5,)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_beta_gradient_past_37():
    """Theta rounds to 1 there: the density must stay finite, and so must its slope."""
    value = np.array([-1e3, -720.0, -40, 0, 20, 36, 36.9, 37.2, 38, 60, 700, 1e3])
    with pm.Model() as model:
        pm.Beta("x", 0.7, 1.3, shape=len(value), default_transform=tr.Sigmoid())
    # compile_dlogp rewrites before it differentiates, the other does not
    (rv_value,) = model.value_vars
    logp = model.logp()
    rewritten_first = model.compile_dlogp(mode=REWRITTEN)({rv_value.name: value})
    function = pm.compile([rv_value], [logp, pt.grad(logp, rv_value)], mode=REWRITTEN)
    total, gradient = function(value)
    assert np.isfinite(total)
    exact = 0.7 - 1 - np.tanh(value / 2)
    for found in (gradient, rewritten_first):
        # 1 - theta keeps a relative precision of eps exp(value)
        np.testing.assert_allclose(found[2:5], exact[2:5], rtol=1e-6)
        assert ((found[5:] < -0.9) & (found[5:] > -1.5)).all()
        assert (found[:2] > 0).all()
        assert np.isfinite(found).all()


def test_in_a_model():
    """`transform=` and `default_transform=`, draws, initial points and the names of values."""
    with pm.Model() as model:
        center = pm.Normal("center", transform=tr.Softplus(2.0, lower=-3))
        pm.Gamma("rate", 2.0, 1.0, default_transform=tr.Exp(), shape=2)
        pm.Uniform("u", 0.0, 4.0, default_transform=tr.Arctan(0, 4), initval=1.0)
        pm.Dirichlet("w", np.ones(3), default_transform=tr.EntropicMirror(), shape=(2, 3))
        bounds = tr.Softsign(bounds_fn=lambda rng, size, mu, sigma: (mu - sigma, mu + sigma))
        pm.Normal("near", center, 0.5, transform=bounds)
    point = model.initial_point()
    assert set(point) == {
        "center_softplus__",
        "rate_exp__",
        "u_arctan__",
        "w_entropic__",
        "near_softsign__",
    }
    assert point["w_entropic__"].shape == (2, 2)
    assert np.isclose(point["u_arctan__"], -1)
    assert np.isclose(point["near_softsign__"], 0)
    gradient = pt.grad(model.logp(), model.value_vars)
    outputs = [*gradient, *model.unobserved_value_vars]
    values = pm.compile(model.value_vars, outputs, mode=REWRITTEN)(**point)
    gradient, back = values[: len(gradient)], values[len(gradient) :]
    assert all(np.isfinite(g).all() for g in gradient)
    back = dict(zip([value.name for value in model.unobserved_value_vars], back, strict=True))
    assert np.isclose(back["u"], 1)
    np.testing.assert_allclose(back["w"], 1 / 3)
    np.testing.assert_allclose(back["near"], back["center"])
    assert pm.draw(model["w"], 4, random_seed=1).shape == (4, 2, 3)


@pytest.mark.parametrize(
    "variable",
    [
        lambda: pm.HalfNormal("s", 10, transform=sg.transforms.Softplus()),
        lambda: pm.Dirichlet("s", np.ones(3), transform=sg.transforms.EntropicMirror()),
    ],
)
def test_a_map_after_the_distributions_own_is_refused(variable):
    with pm.Model():
        variable()
        with pytest.raises(ValueError, match=r"'s'.*default_transform="):
            sg.CoRVSGLD()

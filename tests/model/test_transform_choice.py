"""The choice of maps for the variables of a model."""

import numpy as np
import pymc as pm
import pymc.distributions.transforms as pymc_transforms
import pytensor
import pytensor.tensor as pt
import pytest

from pytensor.graph.replace import graph_replace

import pymc_sgmcmc as sg

from helpers.modes import PLAIN, REWRITTEN
from pymc_sgmcmc import transforms as tr
from pymc_sgmcmc.model import transform_choice as choice
from pymc_sgmcmc.model.coordinates import coordinates_at
from pymc_sgmcmc.testing import UNTUNED


def dependent_model(transforms):
    def given(name):
        return {"default_transform": transforms[name]} if name in transforms else {}

    with pm.Model() as model:
        width = pm.HalfNormal("width", 2.0, **given("width"))
        mu = pm.Normal("mu", 0.0, 1.0)
        pm.Uniform("x", mu - width, mu + width, shape=3, **given("x"))
        pm.TruncatedNormal("y", mu, 1.0, lower=mu + 0.5, **given("y"))
        pm.TruncatedNormal("z", mu, 1.0, upper=mu - 0.5, initval=-2.0, **given("z"))
        pm.Beta("p", 2.0, 2.0, **given("p"))
        pm.Dirichlet("w", np.ones(4), **given("w"))
    return model


@pytest.mark.parametrize(
    ("choose", "positive", "simplex"),
    [(choice.lipschitz, "Softplus", "SimplexTransform"), (choice.mirror, "Exp", "EntropicMirror")],
)
def test_chosen_maps_with_bounds_that_depend_on_other_variables(choose, positive, simplex):
    """The same theta has the same density in both models."""
    theirs = dependent_model({})
    chosen = {rv.name: choose(theirs.rvs_to_transforms[rv], rv) for rv in theirs.free_RVs}
    assert [type(transform).__name__ for transform in chosen.values()] == [
        *[positive, "NoneType", "Sigmoid", positive, positive, "Sigmoid"],
        simplex,
    ]
    ours = dependent_model(chosen)
    rng = np.random.default_rng(3)
    point = {
        name: value + 0.3 * rng.normal(size=value.shape)
        for name, value in theirs.initial_point().items()
    }

    def evaluate(model, point):
        outputs = [*model.unobserved_value_vars, model.logp(jacobian=False), model.logp()]
        values = pm.compile(model.value_vars, outputs, mode=PLAIN)(**point)
        names = [value.name for value in model.unobserved_value_vars]
        return dict(zip([*names, "logp", "with jacobian"], values, strict=True))

    theta = evaluate(theirs, point)
    forward = [
        chosen[rv.name].forward(rv, *rv.owner.inputs) if chosen[rv.name] else pt.as_tensor(rv)
        for rv in ours.free_RVs
    ]
    known = {rv: pt.constant(theta[rv.name]) for rv in ours.free_RVs}
    own_point = {
        value.name: output.eval(mode=PLAIN)
        for value, output in zip(ours.value_vars, graph_replace(forward, known), strict=True)
    }
    found = evaluate(ours, own_point)
    for name in chosen:
        np.testing.assert_allclose(found[name], theta[name], rtol=1e-13, err_msg=name)
    np.testing.assert_allclose(found["logp"], theta["logp"], rtol=1e-12)
    # The Jacobian is triangular: each variable's own slope, by hand
    width, x, p, w = (theta[name] for name in ("width", "x", "p", "w"))
    fraction = (x - theta["mu"] + width) / (2 * width)
    log_jacobian = np.log(2 * width * fraction * (1 - fraction)).sum()
    log_jacobian += np.log(p * (1 - p)) + np.log(w).sum()
    log_jacobian += np.log(4) if choose is choice.lipschitz else 0
    for distance in (width, theta["y"] - theta["mu"] - 0.5, theta["mu"] - 0.5 - theta["z"]):
        slope = -np.expm1(-distance) if choose is choice.lipschitz else distance
        log_jacobian += np.log(slope)
    np.testing.assert_allclose(found["with jacobian"], theta["logp"] + log_jacobian, rtol=1e-12)


def rv_with(make):
    with pm.Model() as model:
        rv = make()
    return model.rvs_to_transforms[rv], rv


CHOICES = {
    "log": (lambda: pm.Gamma("x", 2, 1), tr.Softplus, tr.Exp, (0, None)),
    "log_exp_m1": (
        lambda: pm.Gamma("x", 2, 1, default_transform=pymc_transforms.log_exp_m1),
        tr.Softplus,
        tr.Exp,
        (0, None),
    ),
    "logodds": (lambda: pm.Beta("x", 2, 1), tr.Sigmoid, tr.Sigmoid, (0, 1)),
    "interval": (lambda: pm.Uniform("x", -1, 4), tr.Sigmoid, tr.Sigmoid, (-1, 4)),
    "lower": (lambda: pm.Pareto("x", 2.0, 3.0), tr.Softplus, tr.Exp, (3, None)),
    "upper": (lambda: pm.TruncatedNormal("x", upper=3.0), tr.Softplus, tr.Exp, (None, 3)),
    "infinite upper": (
        lambda: pm.Normal(
            "x", transform=pymc_transforms.Interval(bounds_fn=lambda *_: (pt.constant(1.0), np.inf))
        ),
        tr.Softplus,
        tr.Exp,
        (1, None),
    ),
    "untransformed": (
        lambda: pm.Gamma("x", 2, 1, default_transform=None),
        tr.Softplus,
        tr.Exp,
        (0, None),
    ),
    "a graph of a sigmoid": (lambda: pm.LogitNormal("x"), tr.Sigmoid, tr.Sigmoid, (0, 1)),
    "a graph of an exponential": (
        lambda: pm.CustomDist(
            "x", 1.0, dist=lambda s, size: pt.exp(pm.Normal.dist(0, s, size=size))
        ),
        tr.Softplus,
        tr.Exp,
        (0, None),
    ),
    "a graph of a half-Cauchy variable": (
        lambda: pm.CustomDist("x", 1.0, dist=lambda s, size: 2 * pm.HalfCauchy.dist(s, size=size)),
        tr.Softplus,
        tr.Exp,
        (0, None),
    ),
    "truncated": (
        lambda: pm.Truncated("x", pm.Gamma.dist(2, 1), lower=0.5, upper=2.0),
        tr.Sigmoid,
        tr.Sigmoid,
        (0.5, 2),
    ),
    "truncated above": (
        lambda: pm.Truncated("x", pm.Gamma.dist(2, 1), upper=3),
        tr.Sigmoid,
        tr.Sigmoid,
        (0, 3),
    ),
    "truncated below what is positive": (
        lambda: pm.Truncated("x", pm.HalfNormal.dist(1), lower=-1, upper=3),
        tr.Sigmoid,
        tr.Sigmoid,
        (0, 3),
    ),
    "truncated share": (
        lambda: pm.Truncated("x", pm.Beta.dist(2, 1), lower=0.2, upper=4),
        tr.Sigmoid,
        tr.Sigmoid,
        (0.2, 1),
    ),
}


@pytest.mark.parametrize("name", CHOICES)
def test_choice(name):
    make, lipschitz_kind, mirror_kind, expected = CHOICES[name]
    transform, rv = rv_with(make)
    for chosen, kind in [
        (choice.lipschitz(transform, rv, scale=2.5), lipschitz_kind),
        (choice.mirror(transform, rv), mirror_kind),
    ]:
        assert type(chosen) is kind
        assert kind is not tr.Softplus or chosen.scale == 2.5
        for bound, number in zip(chosen.bounds(*rv.owner.inputs), expected, strict=True):
            assert (bound is None) == (number is None)
            assert number is None or pt.as_tensor(bound).eval(mode=REWRITTEN) == number


KEPT = {
    "unbounded": lambda: pm.Normal("x"),
    "unbounded interval": lambda: pm.TruncatedNormal("x", 0.0, 1.0, lower=-np.inf),
    "some bounds infinite": lambda: pm.TruncatedNormal("x", lower=[-np.inf, 0.0], shape=2),
    "circular": lambda: pm.VonMises("x", 0, 1),
    "ordered": lambda: pm.Normal("x", shape=3, transform=pymc_transforms.ordered, initval=range(3)),
    "chain": lambda: pm.Uniform(
        "x",
        shape=3,
        default_transform=pymc_transforms.Chain([pymc_transforms.logodds, pymc_transforms.ordered]),
        initval=[0.2, 0.4, 0.6],
    ),
    "Cholesky": lambda: pm.LKJCorr("x", n=3, eta=1),
    "zero sum": lambda: pm.ZeroSumNormal("x", shape=3),
    "ours": lambda: pm.Gamma("x", 1, 1, default_transform=tr.ICLL()),
}


@pytest.mark.parametrize("name", KEPT)
def test_kept(name):
    transform, rv = rv_with(KEPT[name])
    assert choice.lipschitz(transform, rv) is transform
    assert choice.mirror(transform, rv) is transform


def test_simplex_is_kept_by_lipschitz_only():
    transform, rv = rv_with(lambda: pm.Dirichlet("x", np.ones(3)))
    assert choice.lipschitz(transform, rv) is transform
    assert isinstance(choice.mirror(transform, rv), tr.EntropicMirror)


def test_a_simplex_without_a_transform_gets_the_usual_one():
    transform, rv = rv_with(lambda: pm.Dirichlet("x", np.ones(3), default_transform=None))
    assert transform is None
    assert choice.lipschitz(transform, rv) is pymc_transforms.simplex


def test_softplus_with_symbolic_scale():
    scale, value = pt.vector("scale"), pt.vector("value")
    chosen = choice.lipschitz(pymc_transforms.Interval(lower=2), pm.HalfNormal.dist(), scale=scale)
    theta = chosen.backward(value)
    outputs = [theta, chosen.forward(theta) - value, chosen.log_jac_det(value)]
    for mode in (REWRITTEN, PLAIN):
        function = pytensor.function([scale, value], outputs, mode=mode)
        theta_, error, log_slope = function([0.5, 20.0], [-1.0, 3.0])
        softplus = np.log1p(np.exp([-1.0, 3.0]))
        np.testing.assert_allclose(theta_, 2 + np.array([0.5, 20]) * softplus, rtol=1e-15)
        np.testing.assert_allclose(error, 0, atol=1e-14)
        np.testing.assert_allclose(
            log_slope, np.log([0.5, 20]) - np.log1p(np.exp([1.0, -3.0])), rtol=1e-14
        )


def test_transforms_by_name_leave_the_others_to_the_method():
    with pm.Model() as model:
        pm.Beta("p", 2.0, 3.0)
        q = pm.Beta("q", 2.0, 3.0)
        options = {**UNTUNED, "step_size": 1e-3, "transforms": {"p": tr.Softsign(0, 1)}}
        step = sg.SMLD(**options)
    chosen, _, _ = coordinates_at(
        model, step.vars, step.options.transforms, model.initial_point(),
        named=step.options.named_transforms,
    )  # fmt: skip
    by_name, by_method = (type(coordinate.transform) for coordinate in chosen)
    assert by_name is tr.Softsign
    assert by_method is type(choice.mirror(model.rvs_to_transforms[q], q))
    assert by_method is not by_name


def test_none_by_name_leaves_a_variable_as_the_model_has_it():
    with pm.Model() as model:
        s = pm.HalfNormal("s")
        step = sg.SGLD(**UNTUNED, step_size=1e-3, transforms={"s": None})
    [chosen], _, _ = coordinates_at(
        model, step.vars, step.options.transforms, model.initial_point(),
        named=step.options.named_transforms,
    )  # fmt: skip
    assert chosen.transform is model.rvs_to_transforms[s]

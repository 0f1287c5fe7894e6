"""The log density in the step's coordinates, against PyMC's own and against closed forms."""

import warnings

import numpy as np
import pymc as pm
import pymc.distributions.transforms as tr
import pytensor
import pytensor.tensor as pt
import pytest

from pytensor.compile.sharedvalue import SharedVariable
from pytensor.gradient import jacobian
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import ancestors
from scipy import stats

import pymc_sgmcmc as sg

from helpers.modes import PLAIN
from helpers.posteriors import posterior_of
from helpers.sampling import QUIET
from pymc_sgmcmc.backends.interpreting import INTERPRETER
from pymc_sgmcmc.testing import UNTUNED

# The same numbers, added in another order
RTOL = 1e-12
# PyMC takes normalising constants, such as log Γ(3.0), in single precision
RTOL_CONSTANTS = 1e-8


def compiled(posterior, outputs, mode=PLAIN):
    inputs = [*posterior.phi, *posterior.scales, *posterior.others, *posterior.data]
    function = pm.compile(inputs, outputs, mode=mode, on_unused_input="ignore")
    return lambda *arguments: function(*arguments, *posterior.data.values())


def moved(phi, rng, by=0.5):
    return [x + rng.uniform(-by, by, size=x.shape) for x in phi]


def bounds_of_other_variables():
    lower = pm.HalfNormal("lower", 2.0)
    upper = pm.TruncatedNormal("upper", lower + 2.0, 1.0, lower=lower)
    x = pm.Uniform("x", lower, upper, shape=3)
    below = pm.TruncatedNormal("below", 0.0, 1.0, upper=x[0])
    pm.Normal("y", x.sum() + below, 0.5, observed=[1.0, 2.0])


def simplex_and_ordered():
    p = pm.Dirichlet("p", [1.0, 2.0, 3.0], shape=(2, 3))
    means = pm.Normal("means", [-1.0, 0.0, 2.0], 1.0, transform=tr.ordered)
    sd = pm.Gamma("sd", 2.0, 1.0)
    pm.NormalMixture("y", p[0], means, sd, observed=np.linspace(-2, 3, 7))
    pm.Multinomial("counts", 10, p[1], observed=[[1, 2, 7], [3, 3, 4]])


def matrices():
    # Without initval PyMC runs a scan in C for the start, and warns where it finds no BLAS
    chol, _, _ = pm.LKJCholeskyCov(
        "chol", n=3, eta=2.0, sd_dist=pm.Exponential.dist(1.0), initval=[1.0, 0, 1, 0, 0, 1]
    )
    effect = pm.ZeroSumNormal("effect", 1.0, shape=(2, 4))
    pm.MvNormal("y", effect[0, :3], chol=chol, observed=np.ones((2, 3)))


def circular_beta_discrete_and_own_transforms():
    angle = pm.VonMises("angle", 0.5, 2.0, shape=2)
    probability = pm.Beta("probability", 2.0, 3.0, shape=2)
    count = pm.Poisson("count", 3.0)
    share = pm.Uniform("share", 1.0, 2.0, default_transform=sg.transforms.Arctan(1.0, 2.0))
    pm.HalfNormal("untransformed", 1.0, default_transform=None, initval=2.0)
    pm.Normal("y", pt.sin(angle) * count, share, observed=[0.3, 0.2])
    pm.Binomial("successes", 7, probability, observed=[2, 3])
    pm.Potential("pull", -pt.sqr(angle - 1.0))


def masks():
    mask = np.arange(100).reshape(10, 10) % 3 == 0
    x = pm.Normal("x", shape=(10, 10))
    missing = np.where(mask[0], np.nan, np.arange(10.0))
    pm.Normal("picked", x[mask].sum() + x[1:3, mask[2]].sum(), 2.0, observed=1.0)
    pm.Normal("written", x[mask[:, 0]].set(pt.exp(x[0])), 1.0, observed=np.ones((10, 10)))
    with warnings.catch_warnings(action="ignore", category=pm.exceptions.ImputationWarning):
        pm.Normal("y", x[:, 0], 1.0, observed=missing)


def neighbours():
    W = np.eye(5, k=1) + np.eye(5, k=-1)
    a = pm.ICAR("a", W=W, sigma=pm.HalfNormal("sigma"))
    b = pm.CAR("b", np.zeros(5), W, pm.Uniform("alpha"), pm.Gamma("tau", 2, 1))
    pm.Poisson("y", pt.exp(a + b), observed=[0, 1, 3, 2, 4])


def observed_parents():
    """Maps, bounds, hierarchies and potentials that need what is observed, also in part."""
    y = np.array([0.5, -1.0, 2.0])
    b, s = pm.Normal("b"), pm.HalfNormal("s")
    first = pm.Normal("first", b, 1, observed=y)
    x = pm.Normal("x", first * b, s, shape=3)
    with warnings.catch_warnings(action="ignore", category=pm.exceptions.ImputationWarning):
        second = pm.Normal("second", x, 0.5, observed=np.where(y < 0, np.nan, y))
    pm.Normal("above", pm.Uniform("u", -5, first), 0.5, observed=y)
    pm.Normal("third", second + s * pm.Normal("z", shape=3) + first, 1.0, observed=y)
    pm.Potential("p", -pt.sum((y - first * b) ** 2))


MODELS = [
    observed_parents,
    bounds_of_other_variables,
    simplex_and_ordered,
    matrices,
    circular_beta_discrete_and_own_transforms,
    masks,
    neighbours,
]


@pytest.fixture(scope="module", params=MODELS, ids=lambda build: build.__name__)
def case(request):
    """A model, a point, and PyMC's log density and gradient at continuous values."""
    with pm.Model() as model:
        request.param()
    # PyMC's density of a CAR has a sum that PyTensor computes only where it is rewritten
    mode = INTERPRETER if request.param is neighbours else PLAIN
    point = model.initial_point()
    logp = pm.compile(model.value_vars, [model.logp(), model.dlogp()], mode=mode)

    def reference(values):
        names = [value.name for value in model.continuous_value_vars]
        at = {**point, **dict(zip(names, values, strict=True))}
        return logp(*[at[value.name] for value in model.value_vars])

    return model, [point[value.name] for value in model.discrete_value_vars], reference, mode


def test_pymcs_transforms_give_pymcs_log_density_and_gradient(case):
    model, others, reference, mode = case
    posterior, phi, _ = posterior_of(model, "model")
    evaluate = compiled(posterior, [posterior.log_density, *posterior.gradient], mode)
    rng = np.random.default_rng(1)
    for _ in range(3):
        x = moved(phi, rng, by=0.2)
        log_density, *gradient = evaluate(*x, *others)
        expected, expected_gradient = reference(x)
        np.testing.assert_allclose(log_density, expected, rtol=RTOL)
        found = -np.concatenate([g.ravel() for g in gradient])
        largest = abs(expected_gradient).max()
        np.testing.assert_allclose(found, expected_gradient, rtol=0, atol=1e-10 * largest)


@pytest.mark.parametrize("choice", ["lipschitz", "mirror"])
def test_other_coordinates_leave_the_law_as_it_is(case, choice):
    """log π(φ) = log p(v) + log|det dv/dφ|, with v PyMC's own unconstrained values."""
    model, others, reference, mode = case
    posterior, phi, scales = posterior_of(model, choice)
    v = pt.concatenate([value.flatten() for value in posterior.values])
    blocks = jacobian(v, posterior.phi, disconnected_inputs="ignore", vectorize=True)
    dv_dphi = pt.concatenate([block.reshape((v.shape[0], -1)) for block in blocks], axis=1)
    evaluate = compiled(posterior, [posterior.log_density, dv_dphi, *posterior.values], mode)
    rng = np.random.default_rng(2)
    for x in [phi, moved(phi, rng), moved(phi, rng)]:
        log_density, matrix, *values = evaluate(*x, *scales, *others)
        expected = reference(values)[0] + np.linalg.slogdet(matrix).logabsdet
        np.testing.assert_allclose(log_density, expected, rtol=RTOL)
        if x is phi:
            point = model.initial_point()
            for c, value in zip(posterior.coordinates, values, strict=True):
                np.testing.assert_allclose(value, point[c.value.name], rtol=1e-9, atol=1e-9)


def test_no_constant_mask_is_left():
    with pm.Model() as model:
        masks()
    posterior, _, _ = posterior_of(model)
    inputs = ancestors([posterior.log_density, *posterior.gradient, *posterior.data])
    assert not [x for x in inputs if getattr(x, "dtype", "") == "bool" and x.owner is None]


def test_jax_is_told_how_many_neighbours_there_are():
    with pm.Model() as model:
        neighbours()
    posterior, _, _ = posterior_of(model)
    assert not [x for x in ancestors([posterior.log_density]) if x.owner and "onzero" in str(x)]


def test_lipschitz_coordinates_with_bounds_of_another_variable_in_closed_form():
    with pm.Model() as model:
        width = pm.HalfNormal("width", 2.0)
        x = pm.Uniform("x", -width, width)
        pm.Normal("y", x, 1.0, observed=0.5)
    posterior, phi, scales = posterior_of(model)
    evaluate = compiled(posterior, [posterior.log_density])
    start = float(np.exp(model.initial_point()["width_log__"]))
    np.testing.assert_allclose(scales, [10 * start])
    for a, b in [phi, (-3.0, 0.7), (2.0, -40.0)]:
        width = 10 * start * np.log1p(np.exp(a))
        x = width * (2 / (1 + np.exp(-b)) - 1)
        expected = (
            stats.halfnorm.logpdf(width, scale=2.0)
            + stats.uniform.logpdf(x, -width, 2 * width)
            + stats.norm.logpdf(0.5, x)
            + np.log(10 * start / (1 + np.exp(-a)))
            + np.log(2 * width)
            + stats.logistic.logpdf(b)
        )
        np.testing.assert_allclose(evaluate(a, b, *scales)[0], expected, rtol=RTOL_CONSTANTS)


def test_temperature_divides_prior_and_likelihood_but_not_the_jacobian():
    with pm.Model() as model:
        rate = pm.Gamma("rate", 3.0, 2.0)
        pm.Poisson("y", rate, observed=[1, 4])
        pm.Potential("pull", -rate)
    posterior, phi, scales = posterior_of(model, temperature=4.0)
    evaluate = compiled(posterior, [posterior.log_density])
    for x in [phi[0], 1.5]:
        s = scales[0]
        rate = s * np.log1p(np.exp(x))
        log_p = stats.gamma.logpdf(rate, 3, scale=1 / 2) + stats.poisson.logpmf([1, 4], rate).sum()
        expected = (log_p - rate) / 4 + np.log(s / (1 + np.exp(-x)))
        np.testing.assert_allclose(evaluate(x, s)[0], expected, rtol=RTOL_CONSTANTS)


def test_variables_of_other_steps_are_inputs_in_pymcs_own_values():
    with pm.Model() as model:
        sd = pm.HalfNormal("sd", 1.0)
        mean = pm.Normal("mean", 0.0, sd)
        pm.Normal("y", mean, sd, observed=[1.0, 2.0])
    posterior, _, scales = posterior_of(model, values=[model.rvs_to_values[mean]])
    assert [other.name for other in posterior.others] == ["sd_log__"]
    assert scales == []
    evaluate = compiled(posterior, [posterior.log_density])
    reference = model.compile_logp(mode=PLAIN)
    for log_sd, x in [(0.3, 1.0), (-1.0, 0.2)]:
        expected = reference({"sd_log__": log_sd, "mean": x})
        np.testing.assert_allclose(evaluate(x, log_sd)[0], expected, rtol=RTOL)


def large_leaves(graphs):
    """Return constants of more than 64 elements and shared variables, in inner graphs too."""
    found, todo = [], list(graphs)
    while todo:
        for variable in ancestors(todo):
            constant = isinstance(variable, Constant) and np.size(variable.data) > 64
            if constant or isinstance(variable, SharedVariable):
                found.append(variable)
        nodes = {v.owner for v in ancestors(todo) if v.owner is not None}
        inner = [node.op.fgraph for node in nodes if hasattr(node.op, "fgraph")]
        todo = [output for fgraph in inner for output in fgraph.outputs]
    return found


@pytest.mark.parametrize("minibatch", [False, True])
def test_data_are_lifted_out_of_the_graph(minibatch):
    rng = np.random.default_rng(0)
    X, Z, Y = rng.normal(size=(100, 3)), rng.normal(size=(80, 2)), rng.normal(size=(100, 2))
    with pm.Model() as model:
        x, y = pm.Data("x", X), Y
        if minibatch:
            x, y = pm.Minibatch(x, y, batch_size=10)
        weights = pm.Normal("weights", shape=(3, 2))
        shift = pm.Data("shift", 2.0)
        pm.Normal("y", x @ weights + shift, 1.0, observed=y, total_size=100 if minibatch else None)
        pm.Normal("z", Z @ weights[0], 1.0, observed=np.ones(80))
    posterior, *_ = posterior_of(model)
    graphs = [posterior.log_density, *posterior.gradient, *posterior.values]
    assert large_leaves(graphs) == []
    # Each array once, and none of a minibatch but its rows
    assert sum(a.size for a in posterior.data.values()) == 160 + 80 + (0 if minibatch else 500)
    assert [a.shape for group in posterior.arrays for a in group] == (
        [(100, 3), (100, 2)] if minibatch else []
    )


@pytest.mark.parametrize(
    "container", [lambda data: pm.Data("data", data), pytensor.shared], ids=["pm.Data", "shared"]
)
def test_data_set_anew_are_seen_by_the_next_run(container):
    with pm.Model():
        data = container(np.full(80, 1.0))
        pm.Normal("y", pm.Normal("mean", 0.0, 10.0), 1.0, observed=data)
        step = sg.CoRVSGLD(step_size=1e-2, **{**UNTUNED, "thin": 50})
        means = []
        for new in [np.full(80, 1.0), np.full(80, -3.0), np.full(90, 7.0)]:
            data.set_value(new)
            dt = pm.sample(step=step, draws=30, tune=5, chains=1, cores=1, random_seed=3, **QUIET)
            means.append(dt.posterior["mean"].mean())
    # Posterior sd 0.11 for each draw
    np.testing.assert_allclose(means, [1.0, -3.0, 7.0], atol=0.1)


def test_lengths_of_dims_are_known_to_the_graph():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 3)), rng.integers(0, 2, 60).astype("int32")
    with pm.Model(coords={"feature": range(3), "unit": range(4), "class": range(2)}) as model:
        x, label = pm.Minibatch(X, y, batch_size=20)
        W, b = pm.Normal("W", dims=("feature", "unit")), pm.Normal("b", dims="unit")
        V, c = pm.Normal("V", dims=("unit", "class")), pm.Normal("c", dims="class")
        logit = pm.math.tanh(x @ W + b) @ V + c
        pm.Categorical("y", logit_p=logit, observed=label, total_size=len(y))
    posterior, _, _ = posterior_of(model)
    # JAX must know those of all that is broadcast; a range of a known length is no such thing
    types = [x.type for x in ancestors(posterior.gradient) if hasattr(x.type, "shape")]
    assert [t for t in types if None in t.shape and t.dtype.startswith("float")] == []


def test_constants_of_double_precision_leave_a_hierarchy_single():
    with pytensor.config.change_flags(floatX="float32"), pm.Model() as model:
        pm.Normal("theta", np.zeros(3), pm.HalfNormal("tau"))
        posterior, _, _ = posterior_of(model, centring=True)
    assert {x.dtype for x in posterior.parameters} == {"float32"}


def test_a_transform_of_what_is_observed_counts():
    """As PyMC counts it: the data are values after the transform."""
    with pm.Model() as model:
        mu = pm.Normal("mu")
        pm.LogNormal("y", mu, 0.5, observed=np.array([0.1, 0.4]), transform=tr.log)
    step = sg.SGLD(model=model, step_size=1e-3, **UNTUNED)
    [(_, [statistics])] = [step.step({"mu": np.array(0.3)})]
    at = {"mu": step.chain.values[0]}
    assert statistics["batch_logp"] == pytest.approx(float(model.compile_logp()(at)), rel=1e-8)

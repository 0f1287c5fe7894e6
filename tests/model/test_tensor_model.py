"""Models of pymc.dims: the same density as tensors, the same data, the same names."""

import cloudpickle
import numpy as np
import pymc as pm
import pymc.dims as pmd
import pytest

from pymc.dims.distributions.transforms import LogTransform
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.xtensor import as_xtensor

import pymc_sgmcmc as sg

from helpers.conjugate import regression
from helpers.modes import PLAIN
from helpers.sampling import run
from helpers.steps import start
from helpers.z_scores import assert_right
from pymc_sgmcmc.model.tensor_model import in_tensors
from pymc_sgmcmc.testing import UNTUNED

COORDS = {"f": ["a", "b", "c"], "g": range(4), "h": range(3), "row": range(30)}
_rng = np.random.default_rng(0)
X, GROUP, Y = _rng.normal(size=(30, 3)), _rng.integers(0, 4, 30), _rng.normal(size=30)
THREE = as_xtensor(np.array([1.0, 2.0, 4.0]), dims="f")
ZEROS = as_xtensor(np.zeros(3), dims="f")


def hierarchy():
    x, group = pmd.Data("x", X, dims=("row", "f")), pmd.Data("group", GROUP, dims="row")
    mu, tau = pmd.Normal("mu", 0, 2), pmd.HalfNormal("tau", 1)
    effects = pmd.Normal("effects", mu, tau, dims="g", initval=np.arange(4.0))
    slopes = pmd.StudentT("slopes", nu=4, dims="f")
    mean = pmd.Deterministic("mean", effects.isel(g=group) + x.dot(slopes, dim="f"))
    pmd.Normal("y", mean, pmd.HalfNormal("sd", 1), observed=as_xtensor(Y, dims="row"))


def bounds():
    """Of scalars, of each element, on one side only, beside elements without any."""
    pmd.Uniform("between", 1, 3, dims="g")
    pmd.Uniform("each", ZEROS, THREE, dims=("f", "g"))
    pmd.Uniform("turned", 0, THREE, dims=("g", "f"))
    pmd.TruncatedNormal("above", 0, 1, lower=-1, upper=np.inf, dims="f")
    pmd.Beta("share", 2, 3, dims="g")
    pmd.Normal("positive", 1, 1, dims="f", transform=LogTransform())


def vectors():
    """Dims of the support last, and where the user turned them."""
    pmd.Dirichlet("last", THREE, core_dims="f", dims=("g", "f"))
    pmd.Dirichlet("first", THREE, core_dims="f", dims=("f", "g"))
    pmd.ZeroSumNormal("sums", 1, core_dims=("g", "f"), dims=("g", "f"))
    pmd.ZeroSumNormal("turned", 1, core_dims="f", dims=("f", "g"))
    cov = as_xtensor(np.eye(3) + 0.2, dims=("f", "h"))
    pmd.MvNormal("normal", THREE, cov=cov, core_dims=("f", "h"))


def beside_tensors():
    a = pm.Normal("a", shape=3)
    b = pmd.Normal("b", as_xtensor(a, dims="f"), 1)
    pm.Normal("y", b.values, 1, observed=np.zeros(3))


def censored():
    law = pmd.Normal.dist(pmd.Normal("mu"), pmd.HalfNormal("sd"))
    seen = as_xtensor(np.clip(Y, -0.5, 1), dims="row")
    pmd.Censored("y", law, lower=-0.5, upper=1, observed=seen)


def turned_observed():
    """Dims in another order than what the observed variable is made of has them."""
    mean = pmd.Normal("a", dims="f") + as_xtensor(Y[:4], dims="g")
    sd = pmd.HalfNormal("sd", dims="f")
    pmd.Normal("y", mean, sd, observed=as_xtensor(X[:4], dims=("g", "f")), dims=("g", "f"))


def seen_as_it_is():
    mu = pmd.Normal("mu", dims="f")
    pmd.Normal("twice", pmd.Deterministic("shown", mu) * 2, 1, dims="f")


def circular():
    pmd.VonMises("angle", 0, 2)


BUILT = [hierarchy, bounds, vectors, beside_tensors, censored, turned_observed, seen_as_it_is]
IN_64 = pytest.mark.skipif(not hasattr(pmd, "VonMises"), reason="PyMC has had it since 6.4")


@pytest.mark.parametrize("build", [*BUILT, pytest.param(circular, marks=IN_64)])
def test_names_starts_and_density_are_those_of_the_model(build):
    with pm.Model(coords=COORDS) as model:
        build()
    twin = in_tensors(model)
    assert in_tensors(model) is twin
    assert list(twin.named_vars) == list(model.named_vars)
    assert twin.named_vars_to_dims == model.named_vars_to_dims
    start, point = model.initial_point(), twin.initial_point()
    assert list(point) == list(start)
    rng = np.random.default_rng(1)
    for name, value in start.items():
        np.testing.assert_allclose(point[name], value, atol=1e-12)
        point[name] = value + rng.normal(0, 0.3, np.shape(value))
    found, expected = (
        pm.compile(m.value_vars, [m.logp(), m.dlogp()], mode=PLAIN)(*point.values())
        for m in (twin, model)
    )
    for new, old in zip(found, expected, strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-10, atol=1e-10)


def test_an_observed_variable_with_its_dims_turned_is_drawn_in_batches():
    with pm.Model(coords=COORDS) as model:
        turned_observed()
        assert sg.SGLD(batch_size=2, batch_dim="g").options.batch_dim == "g"
    assert in_tensors(model)["y"].owner.op.ndim_supp == 0


def test_a_model_without_dims_is_read_as_it_is():
    model, _ = regression()
    assert in_tensors(model) is model


def conjugate():
    """The regression of the helpers, with dims, and its exact moments."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(1000, 2))
    y = x @ [1.0, -0.5] + 0.8 * rng.normal(size=1000)
    with pm.Model(coords={"row": range(1000), "slope": ["a", "b"]}) as model:
        x, y = pmd.Data("x", x, dims=("row", "slope")), pmd.Data("rows", y, dims="row")
        precision = pmd.Gamma("precision", 2.0, 1.0)
        slopes = pmd.Normal("slopes", 0.0, sigma=(0.1 * precision) ** -0.5, dims="slope")
        mean = x.dot(slopes, dim="slope")
        pmd.Normal("y", mean, sigma=precision**-0.5, observed=y, dims="row")
    return model, regression()[1]


@pytest.mark.slow
def test_batches_of_a_dim_give_the_exact_posterior():
    model, exact = conjugate()
    step = sg.CoRVSGLD(model=model, backend="jax", batch_size=50, batch_dim="row")
    result = run(step)
    assert_right(result.posterior, exact)
    assert list(result.posterior["slopes"].coords["slope"].values) == ["a", "b"]


def start_of(model, **options):
    step = sg.SGLD(
        model=model, step_size=1e-5, batch_size=50, batch_dim="row", backend="jax",
        **UNTUNED, **options,
    )  # fmt: skip
    return step, start(step, 0, 3)


def test_new_data_are_read_at_the_next_chain():
    model, _ = conjugate()
    step, point = start_of(model)
    (before, _), new = step.step(point), np.zeros((1000, 2))
    with model:
        pm.set_data({"x": new})
    start(step, 0, 3)
    after, _ = step.step(point)
    assert not np.allclose(after["slopes"], before["slopes"])
    assert any(np.array_equal(x, new) for xs in step._engine.posterior.arrays for x in xs)


class Halved(LogTransform):
    """A map that is not that of the class it is derived from."""

    def forward(self, value, *inputs):
        return super().forward(value) * 2

    def backward(self, value, *inputs):
        return super().backward(value / 2)

    def log_jac_det(self, value, *inputs):
        return value / 2 - np.log(2)


def test_a_transform_of_ones_own_is_applied():
    with pm.Model(coords=COORDS) as model:
        pmd.HalfNormal("x", 1, dims="f", default_transform=Halved())
    (rv,) = in_tensors(model).free_RVs
    transform = in_tensors(model).rvs_to_transforms[rv]
    x = transform.backward(np.array([0.0, 2.0, 4.0])).eval(mode=PLAIN)
    np.testing.assert_allclose(x, np.exp([0.0, 1.0, 2.0]))


def test_coords_that_are_set_anew_are_seen():
    with pm.Model(coords=COORDS) as model:
        x = pmd.Data("x", np.zeros(3), dims="f")
        pmd.Normal("y", x, 1, dims="f")
        twin = in_tensors(model)
        pm.set_data({"x": np.ones(2)}, coords={"f": ["d", "e"]})
    assert in_tensors(model) is twin
    assert list(twin.coords["f"]) == ["d", "e"]
    assert twin.dim_lengths["f"].get_value() == 2


def test_a_variable_that_is_added_later_is_seen():
    model, _ = conjugate()
    before = in_tensors(model)
    with model:
        pmd.Normal("added")
    assert "added" in in_tensors(model).named_vars
    assert "added" not in before.named_vars


@pytest.mark.slow
def test_two_of_ours_beside_another_step():
    model, _ = conjugate()
    options = {"batch_size": 50, "batch_dim": "row", "backend": "jax"}
    with model:
        halves = as_xtensor(np.full(2, 0.5), dims="side")
        kind = pmd.Categorical("kind", halves, core_dims="side")
        ours = ((sg.CoRVSGLD, "slopes"), (sg.MSGNHT, "precision"))
        steps = [method([model[name]], **options) for method, name in ours]
        steps.append(pm.BinaryMetropolis([kind]))
        draws = run(steps, 30, 1, model=model, tune=20).posterior
    assert set(draws["kind"].values.flat) == {0, 1}
    assert abs(draws["slopes"].mean("draw").values - [1.0, -0.5]).max() < 0.2


def test_a_pickled_step_goes_on_with_the_same_bits():
    step, point = start_of(conjugate()[0])
    point, _ = step.step(point)
    copy = cloudpickle.loads(cloudpickle.dumps(step))
    expected, found = step.step(point)[0], copy.step(point)[0]
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value)


@pytest.mark.slow
def test_a_kept_run_goes_on(tmp_path):
    def sampled(draws):
        step, _ = start_of(conjugate()[0])
        return run(sg.checkpoint(step, tmp_path, model=step.model), draws, chains=1, tune=0)

    first, longer = sampled(3), sampled(5)
    assert longer.posterior.sel(draw=slice(0, 2)).equals(first.posterior)


@pytest.mark.slow
def test_diagnostics_take_the_model():
    model, _ = conjugate()
    rows = {"batch_size": 50, "batch_dim": "row", "backend": "jax"}
    step = sg.CoRVSGLD(model=model, **rows)
    result = run(step, draws=100)
    noise = sg.diagnostics.gradient_noise(model, result, **rows)
    assert list(noise.coords["slope"].values) == ["a", "b"]
    report = sg.diagnostics.bias_report(step, model=model, draws=100, chains=1)
    assert set(report.data_vars)


def test_full_data_of_a_model_whose_rows_are_drawn():
    with pm.Model(coords=COORDS) as model:
        x, y = pm.Minibatch(X, Y, batch_size=5)
        slopes = pmd.Normal("slopes", dims="f")
        pm.Normal("y", x @ slopes.values, 1, observed=y, total_size=30)
    full = sg.full_data(model)
    expected = -((Y - X @ np.ones(3)) ** 2).sum() / 2 - 33 / 2 * np.log(2 * np.pi) - 1.5
    assert full.compile_logp(mode=PLAIN)({"slopes": np.ones(3)}) == pytest.approx(expected)


class NoTensors(Op):
    """An operation that only exists with dims."""

    __props__ = ()

    def make_node(self, x):
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, outputs):
        outputs[0][0] = inputs[0]


def test_what_cannot_be_written_with_tensors_is_named():
    with pm.Model(coords=COORDS) as model:
        mu = pmd.Normal("mu", dims="f")
        pmd.Normal("y", NoTensors()(mu), 1, observed=THREE)
    with pytest.raises(NotImplementedError, match=r"'y' of pymc\.dims .* write NoTensors"):
        sg.SGLD(step_size=0.1, model=model)

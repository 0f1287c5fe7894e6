"""The maps against mpmath, against their own inverses, and inside PyMC models."""

import pickle

import mpmath
import numpy as np
import pymc as pm
import pymc.distributions.transforms as pymc_transforms
import pytensor
import pytensor.tensor as pt
import pytest

from pytensor.compile.mode import Mode
from pytensor.graph.replace import graph_replace
from scipy.integrate import simpson

from pymc_sgmcmc import transform_choice as choice
from pymc_sgmcmc import transforms as tr

UNIT = {"sigmoid": tr.Sigmoid(), "arctan": tr.Arctan(), "softsign": tr.Softsign()}
POSITIVE = {
    "exp": tr.Exp(),
    "softplus": tr.Softplus(),
    "softplus, scale 7.25": tr.Softplus(7.25),
    "icll": tr.ICLL(),
}
STANDARD = UNIT | POSITIVE
SHIFTED = {
    "sigmoid (-2, 3.75)": tr.Sigmoid(-2, 3.75),
    "sigmoid (0, 1e-30)": tr.Sigmoid(0, 1e-30),
    "arctan (0, 100)": tr.Arctan(0, 100),
    "softsign (-3, -1)": tr.Softsign(-3, -1),
    "softplus above 1.25": tr.Softplus(3.0, lower=1.25),
    "exp below -2": tr.Exp(upper=-2),
}
ALL = STANDARD | SHIFTED

NUMBA, JAX, PLAIN = "NUMBA", "JAX", Mode(linker="py", optimizer=None)
# for models: nothing is compiled
REWRITTEN = Mode(linker="py", optimizer="fast_run")


class Compiled:
    """All maps in two functions: a value to f, log f', and both derivatives; and the inverse."""

    def __init__(self, mode, dtype="float64"):
        value = pt.vector("value", dtype=dtype)
        inverses = [transform.forward(value) for transform in ALL.values()]
        outputs = []
        with pytensor.config.change_flags(floatX=dtype):  # the dtype of some zeros in gradients
            for transform in ALL.values():
                f, log_slope = transform.backward(value), transform.log_jac_det(value)
                outputs += [f, log_slope, pt.grad(f.sum(), value), pt.grad(log_slope.sum(), value)]
        assert {output.dtype for output in outputs + inverses} == {dtype}
        self.dtype = np.dtype(dtype)
        self.eps = float(np.finfo(dtype).eps)
        # the functions in an OpFromGraph take the default mode
        default = PLAIN if mode is PLAIN else pytensor.config.mode
        with pytensor.config.change_flags(floatX=dtype, mode=default):
            self._maps = pytensor.function([value], outputs, mode=mode)
            self._inverses = pytensor.function([value], inverses, mode=mode)
            self("exp", []), self.inverse("exp", [])

    def __call__(self, name, value):
        start = 4 * list(ALL).index(name)
        return self._call(self._maps, value)[start : start + 4]

    def inverse(self, name, theta):
        return self._call(self._inverses, theta)[list(ALL).index(name)]

    def _call(self, function, values):
        """JAX compiles anew for each length: call with one length only."""
        padded = np.ones(1000, self.dtype)
        padded[: len(values)] = values
        return [np.asarray(output)[: len(values)] for output in function(padded)]


@pytest.fixture(
    scope="module",
    params=[(NUMBA, "float64"), (JAX, "float64"), (PLAIN, "float64"), (JAX, "float32")],
    ids=["numba", "jax", "unrewritten", "jax-float32"],
)
def compiled(request):
    mode, dtype = request.param
    if mode == JAX:
        pytest.importorskip("jax")
        pytest.importorskip("pytensor.link.jax.dispatch")  # decides on x64 by floatX on import
    return Compiled(mode, dtype)


def grid(dtype):
    """Return values that fill the range in which exp(value) is a normal number."""
    positive = np.geomspace(1e-5, 700 if dtype == np.float64 else 87, 40)
    return np.concatenate([-positive[::-1], [0], positive]).astype(dtype)


def exactly(name, value):
    """Return f, log f', f' and the derivative of log f' at a value, in high precision."""
    value = mpmath.mpf(float(value))
    exp = mpmath.exp(value)
    scale = mpmath.mpf(7.25 if name == "softplus, scale 7.25" else 1)
    match name.split(",")[0]:
        case "sigmoid":
            f, slope = exp / (1 + exp), exp / (1 + exp) ** 2
            bend = (1 - exp) / (1 + exp)
        case "arctan":
            f = mpmath.atan2(1, -value) / mpmath.pi
            slope, bend = 1 / (mpmath.pi * (1 + value**2)), -2 * value / (1 + value**2)
        case "softsign":
            f, slope = (1 + value / (1 + abs(value))) / 2, 0.5 / (1 + abs(value)) ** 2
            bend = -2 * mpmath.sign(value) / (1 + abs(value))
        case "exp":
            f, slope, bend = exp, exp, mpmath.mpf(1)
        case "softplus":
            f, slope, bend = scale * mpmath.log1p(exp), scale * exp / (1 + exp), 1 / (1 + exp)
        case "icll":
            f = value + mpmath.e1(exp) + mpmath.euler
            slope = -mpmath.expm1(-exp)
            bend = exp / mpmath.expm1(exp) if exp < 1e6 else mpmath.mpf(0)
    return f, mpmath.log(slope), slope, bend


@pytest.fixture(scope="module")
def reference():
    exact = {}
    for value in {*grid(np.dtype("float64")), *grid(np.dtype("float32"))}:
        for name in STANDARD:
            # phi + E1(exp(phi)) + gamma loses as many digits as exp(phi) has zeros
            with mpmath.workdps(40 + (int(max(0, -value) / 2.3) if name == "icll" else 0)):
                exact[name, float(value)] = exactly(name, value)
    return exact


@pytest.mark.parametrize("name", STANDARD)
def test_values_and_derivatives_are_exact(compiled, reference, name):
    values = grid(compiled.dtype)
    f, log_slope, slope, bend = compiled(name, values)
    for i, value in enumerate(values):
        exact = reference[name, float(value)]
        relative = 4 * compiled.eps * (4 + abs(value))
        assert abs(float(f[i]) / exact[0] - 1) <= relative, value
        assert abs(float(log_slope[i]) - exact[1]) <= 4 * compiled.eps * (1 + abs(exact[1])), value
        assert abs(float(slope[i]) / exact[2] - 1) <= relative, value
        assert abs(float(bend[i]) - exact[3]) <= 4 * compiled.eps, value


def thetas(transform, dtype):
    """Return values of theta from the bounds on, at distances over the range of floats."""
    lowest, highest = (1e-307, 1e300) if dtype == np.float64 else (1e-37, 1e37)
    lower, upper = transform.bounds()
    scale = upper - lower if transform.n_bounds == 2 else getattr(transform, "scale", 1)
    lowest *= max(scale, 1)  # theta / scale must be a normal number
    distances = np.geomspace(lowest, highest, 300)
    if lower is None:
        theta = upper - distances
    elif upper is None:
        theta = lower + distances
    else:
        distances = distances[distances < (upper - lower) / 2]
        theta = np.concatenate([lower + distances, upper - distances])
    theta = theta.astype(dtype)
    inside = np.isfinite(theta)
    for bound in (lower, upper):
        if bound is not None:
            inside &= theta != dtype.type(bound)
    return theta[inside]


def size(transform, theta):
    """Return the magnitude of the numbers that are added up to theta."""
    return np.maximum(abs(theta), max(abs(bound or 0) for bound in transform.bounds()))


@pytest.mark.parametrize("name", ALL)
def test_inverse_then_map(compiled, name):
    transform = ALL[name]
    theta = thetas(transform, compiled.dtype)
    value = compiled.inverse(name, theta)
    assert np.isfinite(value).all()
    error = abs(compiled(name, value)[0] / theta - 1)
    tolerance = 4 * compiled.eps * (4 + abs(value))
    if name in SHIFTED:  # theta may be near 0, where bound + distance cancels
        tolerance = np.maximum(tolerance, compiled.eps * size(transform, theta) / abs(theta))
    assert (error <= tolerance).all(), theta[error > tolerance]


@pytest.mark.parametrize("name", ALL)
def test_map_then_inverse(compiled, name):
    """Past 36.7 (float32: 16) from a bound that is not 0 the tolerance says: nothing is known."""
    values = grid(compiled.dtype)
    theta, log_slope, *_ = compiled(name, values)
    finite = np.isfinite(theta)
    assert finite.all()
    error = abs(compiled.inverse(name, theta) - values)
    with np.errstate(over="ignore", divide="ignore"):
        from_rounding = size(ALL[name], theta) / np.exp(log_slope)
    tolerance = 4 * compiled.eps * (abs(values) + from_rounding)
    assert (error <= tolerance).all(), values[~(error <= tolerance)]


def test_icll_inverse_after_four_newton_steps(compiled):
    theta = thetas(tr.ICLL(), compiled.dtype)
    theta = np.sort(np.append(theta, np.linspace(0.05, 5, 300).astype(compiled.dtype)))
    error = abs(compiled("icll", compiled.inverse("icll", theta))[0] / theta - 1)
    assert error.max() <= max(5e-14, 2 * compiled.eps * np.log(theta.max()))
    near_one = (theta > 0.05) & (theta < 5)
    assert error[near_one].max() <= 8 * compiled.eps


@pytest.mark.parametrize("name", ALL)
def test_finite_and_strictly_inside_everywhere(compiled, name):
    """Also where exp(-value) and value**2 underflow or overflow."""
    large = [90, 400, 1e3, 1e10] + ([1e30] if compiled.eps > 1e-8 else [1e160, 1e300])
    value = np.sort([-v for v in large] + [-38, -17, 0, 17, 36.9, 37.4, 38, *large])
    if name.startswith("exp"):
        value = value[value < (700 if compiled.dtype == np.float64 else 87)]
    f, log_slope, slope, bend = compiled(name, value)
    lower, upper = ALL[name].bounds()
    if lower is not None:
        assert (f > compiled.dtype.type(lower)).all()
    if upper is not None:
        assert (f < compiled.dtype.type(upper)).all()
    for output in (f, log_slope, slope, bend, compiled.inverse(name, f)):
        assert np.isfinite(output).all()
    increase = np.diff(f) if lower is not None else -np.diff(f)
    assert (increase >= -2 * compiled.eps * abs(f[1:])).all()


def test_least_distance_is_one_float(compiled):
    one, far = compiled.dtype.type(1), 300.0
    assert compiled("sigmoid", [far])[0] == np.nextafter(one, 0 * one)
    assert compiled("softsign (-3, -1)", [1e30])[0] == np.nextafter(-one, -2 * one)
    assert compiled("exp below -2", [-far])[0] == np.nextafter(-2 * one, -3 * one)
    assert compiled("exp", [-far * 10])[0] == np.finfo(compiled.dtype).tiny


def test_gradient_is_not_killed_at_the_bound(compiled):
    """Theta no longer moves past 37, its derivative still decays like that of f."""
    value = np.array([20.0, 38, 60, 80])
    np.testing.assert_allclose(compiled("sigmoid", value)[2], np.exp(-value), rtol=1e-5)


@pytest.mark.parametrize("name", ALL)
def test_inverse_at_and_outside_a_bound(compiled, name):
    for bound, outward in zip(ALL[name].bounds(), (-1, 1), strict=True):
        if bound is not None:
            theta = np.array([bound, bound + outward * 0.25])
            at, outside = compiled.inverse(name, theta)
            assert np.isfinite(at)
            assert np.isnan(outside)


@pytest.mark.parametrize("name", STANDARD)
def test_lipschitz_constant_is_the_least(compiled, name):
    constant = STANDARD[name].lipschitz_constant * getattr(STANDARD[name], "scale", 1)
    values = grid(compiled.dtype)
    slope = compiled(name, values)[2]
    if np.isinf(constant):
        assert slope.max() > 1e30
    else:
        assert slope.max() <= constant * (1 + compiled.eps)
        assert slope.max() >= constant * (1 - 1e-6)


@pytest.mark.parametrize("name", [name for name in STANDARD if name != "softsign"])
def test_second_derivative(name):
    """f'' = f' (log f')', by differentiating twice: what a Hessian at the mode needs."""
    transform = STANDARD[name]
    value = pt.vector("value")
    slope = pt.grad(transform.backward(value).sum(), value)
    bend = pt.grad(transform.log_jac_det(value).sum(), value)
    second = pytensor.function([value], [pt.grad(slope.sum(), value), slope * bend], mode=REWRITTEN)
    twice, product = second(np.linspace(-30, 30, 121))
    np.testing.assert_allclose(twice, product, rtol=1e-12, atol=1e-14)


class TestEntropicMirror:
    mirror, theirs = tr.EntropicMirror(), pymc_transforms.simplex

    @pytest.mark.parametrize("mode", [REWRITTEN, PLAIN], ids=["rewritten", "unrewritten"])
    @pytest.mark.parametrize("shape", [(1,), (2,), (9,), (4, 3, 2)])
    def test_against_pymc(self, mode, shape):
        """PyMC's coordinates v have y_l = v_l + sum(v): its determinant is K times ours."""
        v = pt.tensor("v", shape=(None,) * len(shape), dtype="float64")
        y = v + v.sum(-1, keepdims=True)
        simplex = self.mirror.backward(y)
        function = pytensor.function(
            [v],
            [
                simplex - self.theirs.backward(v),
                self.mirror.log_jac_det(y) + np.log(shape[-1] + 1) - self.theirs.log_jac_det(v),
                self.mirror.forward(simplex) - y,
            ],
            mode=mode,
        )
        values = np.random.default_rng(1).normal(scale=3, size=shape)
        simplex_error, jacobian_error, round_trip_error = function(values)
        assert simplex_error.shape == (*shape[:-1], shape[-1] + 1)
        assert jacobian_error.shape == shape[:-1]
        np.testing.assert_allclose(simplex_error, 0, atol=1e-15)
        np.testing.assert_allclose(jacobian_error, 0, atol=1e-11)
        np.testing.assert_allclose(round_trip_error, 0, atol=1e-12)

    @pytest.mark.parametrize("mode", [REWRITTEN, PLAIN], ids=["rewritten", "unrewritten"])
    def test_finite_everywhere_and_determinant(self, mode):
        y = pt.vector("y", dtype="float64", shape=(3,))
        x = self.mirror.backward(y)
        jacobian = pt.stack([pt.grad(x[k], y) for k in range(4)])
        log_det = self.mirror.log_jac_det(y)
        logp = pt.log(x).sum() + log_det
        outputs = [x, jacobian, log_det, pt.grad(logp, y), self.mirror.forward(x)]
        function = pytensor.function([y], outputs, mode=mode)
        for values in ([0.3, -1, 2.0], [800, -800, 0.0], [-3e3, -2e3, -1e3], [1e5, 1e5, 1e5]):
            x_, jacobian_, log_det_, gradient, inverse = function(np.array(values))
            assert (x_ > 0).all()
            assert np.isclose(x_.sum(), 1)
            for output in (jacobian_, log_det_, gradient, inverse):
                assert np.isfinite(output).all()
            assert np.linalg.norm(jacobian_, 2) <= tr.EntropicMirror.lipschitz_constant
        _, jacobian_, log_det_, *_ = function(np.array([0.3, -1, 2]))
        assert np.isclose(np.linalg.slogdet(jacobian_[:3])[1], log_det_, rtol=1e-13)


# In models


DISTRIBUTIONS = {
    "Gamma": (
        lambda **k: pm.Gamma("x", 2.5, 1.5, **k),
        {"exp": tr.Exp(), "softplus": tr.Softplus()},
    ),
    "Gamma, shape below 1": (
        lambda **k: pm.Gamma("x", 0.8, 0.1, **k),
        {"softplus": tr.Softplus(7.25)},
    ),
    "Beta": (lambda **k: pm.Beta("x", 2.5, 3.5, **k), UNIT),
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
        values = pm.compile(model.value_vars, outputs, mode=REWRITTEN)(**point)
        names = [value.name for value in model.unobserved_value_vars]
        return dict(zip([*names, "logp", "with jacobian"], values, strict=True))

    theta = evaluate(theirs, point)
    forward = [
        chosen[rv.name].forward(rv, *rv.owner.inputs) if chosen[rv.name] else pt.as_tensor(rv)
        for rv in ours.free_RVs
    ]
    known = {rv: pt.constant(theta[rv.name]) for rv in ours.free_RVs}
    own_point = {
        value.name: output.eval(mode=REWRITTEN)
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


# The choice of maps


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
    "upper": (
        lambda: pm.TruncatedNormal("x", upper=3.0),
        tr.Softplus,
        tr.Exp,
        (None, 3),
    ),
    "infinite upper": (
        lambda: pm.Normal(
            "x", transform=pymc_transforms.Interval(bounds_fn=lambda *_: (pt.constant(1.0), np.inf))
        ),
        tr.Softplus,
        tr.Exp,
        (1, None),
    ),
    "truncated": (
        lambda: pm.Truncated("x", pm.Gamma.dist(2, 1), lower=0.5, upper=2.0),
        tr.Sigmoid,
        tr.Sigmoid,
        (0.5, 2),
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
    assert choice.lipschitz(pymc_transforms.simplex) is pymc_transforms.simplex
    assert isinstance(choice.mirror(pymc_transforms.simplex), tr.EntropicMirror)


def test_softplus_with_symbolic_scale():
    scale, value = pt.vector("scale"), pt.vector("value")
    chosen = choice.lipschitz(pymc_transforms.Interval(lower=2), scale=scale)
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


def test_array_bounds_and_integers():
    transform = tr.Sigmoid(np.array([0, 1]), np.array([1, 3]))
    np.testing.assert_array_equal(transform.backward([0, 0]).eval(mode=REWRITTEN), [0.5, 2])
    np.testing.assert_array_equal(transform.forward([0.5, 2]).eval(mode=REWRITTEN), 0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tr.Sigmoid(1, 1), "`lower` must be below `upper`"),
        (lambda: tr.Arctan(0, np.inf), "needs two finite"),
        (lambda: tr.Softsign(None, 1), "needs two finite"),
        (lambda: tr.Exp(lower=0, upper=1), "needs exactly one finite"),
        (lambda: tr.Softplus(lower=np.inf), "needs exactly one finite"),
        (lambda: tr.ICLL(lower=[0, -np.inf]), "needs exactly one finite"),
        (lambda: tr.Softplus(0.0), "`scale` must be positive"),
        (lambda: tr.Sigmoid(0, pt.scalar("b")), "`bounds_fn"),
        (lambda: tr.Sigmoid(bounds_fn=lambda: (0, None)).backward(0.0), "needs two finite"),
    ],
)
def test_errors_name_the_argument(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_pickles():
    for transform in ALL.values():
        clone = pickle.loads(pickle.dumps(transform))
        assert vars(clone) == vars(transform)

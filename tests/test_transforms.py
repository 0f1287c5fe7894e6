"""The maps against mpmath and against their own inverses."""

import pickle

from functools import cache

import mpmath
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from helpers.modes import PLAIN, REWRITTEN
from pymc_sgmcmc import transforms as tr
from pymc_sgmcmc.backends.workarounds import interpreted

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
NUMBA, JAX = "NUMBA", "JAX"


@cache
def graphs(dtype):
    """A value, and of all maps f, log f', and both derivatives; and the inverses."""
    value = pt.vector("value", dtype=dtype)
    inverses = [transform.forward(value) for transform in ALL.values()]
    outputs = []
    with pytensor.config.change_flags(floatX=dtype):  # the dtype of some zeros in gradients
        for transform in ALL.values():
            f, log_slope = transform.backward(value), transform.log_jac_det(value)
            outputs += [f, log_slope, pt.grad(f.sum(), value), pt.grad(log_slope.sum(), value)]
    return value, outputs, inverses


class Compiled:
    """All maps in two functions."""

    def __init__(self, mode, dtype="float64"):
        value, outputs, inverses = graphs(dtype)
        assert {output.dtype for output in outputs + inverses} == {dtype}
        self.dtype = np.dtype(dtype)
        self.eps = float(np.finfo(dtype).eps)
        # the functions in an OpFromGraph take the default mode
        default = PLAIN if mode is PLAIN else pytensor.config.mode
        with pytensor.config.change_flags(floatX=dtype, mode=default, cxx=""):
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
    params=[
        # Half a minute of compilation
        pytest.param((NUMBA, "float64"), id="numba", marks=pytest.mark.slow),
        pytest.param((JAX, "float64"), id="jax"),
        pytest.param((PLAIN, "float64"), id="unrewritten"),
        pytest.param((JAX, "float32"), id="jax-float32"),
    ],
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
    with interpreted():
        second = pytensor.function([value], [pt.grad(slope.sum(), value), slope * bend], mode=PLAIN)
    twice, product = second(np.linspace(-30, 30, 121))
    np.testing.assert_allclose(twice, product, rtol=1e-12, atol=1e-14)


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

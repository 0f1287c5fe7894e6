"""What a sampler may ask for: variables, θ itself, the potential, independent rows."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc.exceptions import SamplingError
from scipy import stats

import pymc_sgmcmc as sg

from helpers.backends import BOTH
from helpers.conjugate import flat_means
from helpers.laws import error_of_cdf
from helpers.steps import drawn
from helpers.z_scores import STANDARD_ERRORS
from pymc_sgmcmc.testing import UNTUNED, check, gaussian, run_chain


class Mirrored(sg.SGMCMCStep):
    """Langevin dynamics in θ, reflected at both bounds of an interval."""

    name = "mirrored"

    def policy(self):
        return sg.Policy(step_size=0.01, coordinates="identity", whitened=False)

    def update(self, position, extra, gradient, step_size, noise):
        x, h = position, step_size
        a, b = gradient.variables.lower(x), gradient.variables.upper(x)
        x = x - h * gradient(x) + sg.sqrt(2 * h) * noise.normal()
        w = b - a
        u = (x - a).map(lambda t, w: t % (2 * w), w)
        return a + w - (u - w).map(pt.abs), extra


def test_mirrored_sampler_in_theta_is_right_where_the_density_is_bounded():
    with pm.Model() as model:
        pm.TruncatedNormal("x", mu=0.3, sigma=1.0, lower=0.0, upper=2.0, shape=4000)
        step = Mirrored(step_size=0.002, thin=200, backend="jax")
    law = stats.truncnorm(-0.3, 1.7, loc=0.3)
    error, se = error_of_cdf(model, step, law, seed=2)
    assert abs(error) < STANDARD_ERRORS * se + 0.002


def test_theta_is_not_tuned():
    with pm.Model():
        pm.Uniform("x")
        with pytest.raises(ValueError, match=r"Mirrored runs in θ itself.*Pass step_size"):
            Mirrored()
        with pytest.raises(ValueError, match="gradient='plain'"):
            Mirrored(step_size=0.1, gradient=sg.ControlVariates())
        with pytest.raises(ValueError, match="takes no transforms"):
            Mirrored(step_size=0.1, transforms="model")
        with pytest.raises(ValueError, match="takes no whitening"):
            Mirrored(step_size=0.1, scale={"x": 2.0})


class Asking(sg.SGMCMCStep):
    """Stands still and writes down what the gradient knows."""

    own_statistics = ("potential", "same", "different")

    def policy(self):
        return sg.Policy(step_size=0.1, whitened=False)

    def initial_extra(self, position, rng):
        zero = np.zeros((), dtype=position[0].dtype)
        return {"seen": [zero, zero, zero], "maps": [np.zeros((4, *x.shape)) for x in position]}

    def update(self, position, extra, gradient, step_size, noise):
        variables = gradient.variables
        other = gradient.independent()
        same = (gradient(position) - gradient(position)).map(pt.abs).sum()
        different = (gradient(position) - other(position)).map(pt.abs).sum()
        seen = sg.Blocks([gradient.potential(position), same, different])
        maps = [variables.theta(position), variables.slope(position), variables.second(position),
                variables.lower(position).map(lambda x: pt.maximum(x, -1e9))]  # fmt: skip
        stacked = sg.Blocks(pt.stack(list(parts)) for parts in zip(*maps, strict=True))
        return position, {"seen": seen, "maps": stacked}

    def statistics(self, extra):
        return dict(zip(self.own_statistics, extra["seen"], strict=True))


class Forgetful(sg.SGLD):
    """Promises a statistic that it does not return."""

    own_statistics = ("energy",)


class OfEach(Forgetful):
    """Returns a statistic of each element."""

    def statistics(self, extra):
        return {"energy": sg.Blocks([pt.zeros(2)])}


class Position(sg.SGLD):
    """Returns no further state."""

    def update(self, position, *others):
        return position


class Another(sg.SGLD):
    """Returns a further state that it does not begin with."""

    def update(self, position, *others):
        return position, {"momentum": position}


@pytest.mark.parametrize(
    ("method", "said"),
    [
        (Forgetful, r"returns \[\], and own_statistics names \['energy'\]"),
        (OfEach, r"^OfEach\.statistics\(\) must return scalars, such as .* 'energy' is none"),
        (Position, r"^Position\.update\(\) must return the position and the further state"),
        (Another, r"returns the further state \['momentum'\], and initial_extra\(\) \[\]"),
    ],
)
def test_what_a_sampler_returns_is_checked(method, said):
    with pm.Model() as model:
        pm.Normal("x")
        step = method(step_size=0.1, backend="jax", **UNTUNED)
    step.setup_chain(np.random.default_rng(0), 0, 1)
    with pytest.raises(SamplingError, match=said):
        step.step(model.initial_point())


def test_a_sampler_has_no_statistic_of_all():
    with pytest.raises(TypeError, match=r"^Thin\.own_statistics has 'thin', which all"):
        type("Thin", (sg.SGLD,), {"own_statistics": ("thin", "mine")})


@pytest.mark.parametrize("batches", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_what_an_update_may_ask(batches):
    data = np.random.default_rng(0).normal(1.0, 2.0, size=60)
    with pm.Model():
        y = pm.Minibatch(data, batch_size=10)
        mu = pm.Normal("mu", 0, 10)
        sd = pm.Uniform("sd", 0.5, 5.0, shape=2)
        pm.Normal("y", mu, sd[0], observed=y, total_size=60)
        step = Asking(step_size=0.1, backend="jax", **{**UNTUNED, "thin": 1, "batches": batches})
    potentials, differences = [], []
    for _, found in drawn(step, 400):
        assert found["same"] == 0
        potentials.append(found["potential"])
        differences.append(found["different"])
    assert np.mean(np.array(differences) > 0) > 0.9
    # The estimates of U are unbiased
    (of_mu, of_sd), x = step.chain.extra["maps"], step.chain.psi[1]
    exact = -(
        stats.norm.logpdf(of_mu[0], 0, 10) + np.log(of_mu[1])
        + np.log(of_sd[1] / 4.5).sum()
        + stats.norm.logpdf(data, of_mu[0], of_sd[0][0]).sum()
    )  # fmt: skip
    error = np.std(potentials, ddof=1) / np.sqrt(len(potentials))
    assert abs(np.mean(potentials) - exact) < STANDARD_ERRORS * error
    # The maps are those of the coordinates
    kinds = [c.kind for c in step._engine.posterior.coordinates]
    assert kinds == ["real", "interval"]
    sigmoid = 1 / (1 + np.exp(-x))
    expected = [
        0.5 + 4.5 * sigmoid,
        4.5 * sigmoid * (1 - sigmoid),
        4.5 * sigmoid * (1 - sigmoid) * (1 - 2 * sigmoid),
        np.full(2, 0.5),
    ]
    np.testing.assert_allclose(of_sd, expected, rtol=1e-10)


class TwoRows(sg.SGMCMCStep):
    """Euler's step with the mean of two independent estimates: as of twice the batches."""

    def update(self, position, extra, gradient, step_size, noise):
        x, h = position, step_size
        mean = (gradient(x) + gradient.independent()(x)) / 2
        return x - h * mean + sg.sqrt(2 * h) * noise.normal(), extra


@BOTH
def test_independent_rows_halve_the_noise(backend):
    # A normal mean: with noise of variance σ² the variance is that of σ²/2
    rows, columns, batch = 200, 400, 20
    data = np.random.default_rng(1).normal(0.0, np.sqrt(rows), size=(rows, columns))
    noise, h = rows / batch * data.var(axis=0).mean() / rows, 0.05
    model = flat_means(data, np.sqrt(rows), batch)
    options = {**UNTUNED, "thin": 20}
    step = TwoRows(model=model, step_size=h, batch="random", backend=backend, **options)
    draws = run_chain(model, step, burn=12, draws=60, seed=3)["x"] - data.mean(axis=0)
    variances = (draws**2).mean(axis=0)
    error = variances.std(ddof=1) / np.sqrt(columns)
    assert abs(variances.mean() - (2 + h * noise / 2) / (2 - h)) < STANDARD_ERRORS * error


def test_check_of_a_gaussian_sees_nothing_of_the_widened_interface():
    target = gaussian(2, lambda h, noise: (2 + h * noise) / (2 - h), 0.1)
    check(target, TwoRows, step_size=0.1, backend="jax")


def test_blocks_are_divided_as_numbers_are():
    assert list(1 / sg.Blocks([1.0, 2.0])) == [1.0, 0.5]

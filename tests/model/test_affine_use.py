"""Which standard variables are found to be non-centred hierarchies, and with which parents."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc_sgmcmc.backends.interpreting import INTERPRETER
from pymc_sgmcmc.model.affine_use import ModelView

G = np.array([0, 1, 2, 2, 1, 0])
Z = np.array([0.3, -1.2, 2.0])


def parents_of(model, sampled):
    return ModelView(model, sampled, {}).parents


def product(mu, sd, z):
    return mu + sd * z


def as_deterministic(mu, sd, z):
    return pm.Deterministic("theta", mu + pm.Deterministic("offset", z * sd))


def divided(mu, sd, z):
    return mu + z / pt.sqrt(sd)


def two_factors(mu, sd, z):
    return z * sd * pt.exp(mu)


def gathered(mu, sd, z):
    return mu + sd * z[G]


def cumulated(mu, sd, z):
    return mu + sd * pt.cumsum(z)


def steps_cumulated(mu, sd, z):
    return mu + pt.cumsum(sd * z)


def gathered_after(mu, sd, z):
    return (mu + sd * z)[G]


def twice(mu, sd, z):
    return sd * z[G] + sd * z[G[::-1]]


def used(use):
    """Return a model in which three effects are used so, with their location and scale."""
    with pm.Model() as model:
        mu, sd = pm.Normal("mu"), pm.HalfNormal("sd")
        theta = use(mu, sd, pm.Normal("z", 0, 1, shape=3))
        pm.Normal("y", theta, 1, observed=np.zeros(3 if theta.type.shape == (3,) else 6))
    return model, mu, sd


@pytest.mark.parametrize(
    ("use", "location", "scale"),
    [
        (product, 1.5, 0.5),
        (as_deterministic, 1.5, 0.5),
        (divided, 1.5, 0.5**-0.5),
        (two_factors, 0, 0.5 * np.exp(1.5)),
        (gathered, 0, 0.5),
        (gathered_after, 1.5, 0.5),
    ],
)
def test_location_and_scale(use, location, scale):
    model, mu, sd = used(use)
    [parents] = parents_of(model, set(model.free_RVs)).values()
    at = {mu: np.array(1.5), sd: np.array(0.5)}
    found = [pt.as_tensor(g).eval(at, mode=INTERPRETER, on_unused_input="ignore").squeeze()
             for g in parents.graphs]  # fmt: skip
    np.testing.assert_allclose(found, [location, scale])


def squared(mu, sd, z):
    return sd * z**2


def also_alone(mu, sd, z):
    return sd * z + z


def other_scales(mu, sd, z):
    return sd * z[G] + 2 * z[G]


def signed(mu, sd, z):
    return mu * z


def of_rows(mu, sd, z):
    return z[G] * pt.abs(mu * np.arange(6.0))


@pytest.mark.parametrize(
    "use", [squared, also_alone, other_scales, cumulated, steps_cumulated, signed, of_rows, twice]
)
def test_what_is_left_as_it_is(use):
    model, _, _ = used(use)
    assert parents_of(model, set(model.free_RVs)) == {}


@pytest.mark.parametrize(
    "covariance",
    [
        lambda length, height: height**2 * pm.gp.cov.ExpQuad(1, length),
        lambda length, height: pm.gp.cov.Matern52(1, length) * height**2,
        lambda length, height: height * pm.gp.cov.Matern32(1, length) + pm.gp.cov.ExpQuad(1, 2.0),
    ],
)
@pytest.mark.parametrize("linearised", [True, False])
def test_coefficients_of_a_process_in_a_basis(covariance, linearised):
    """HSGP multiplies them by the root of a spectral density, which is positive."""
    x = np.linspace(-1, 1, 20)[:, None]
    with pm.Model() as model:
        length, height = pm.InverseGamma("length", 5, 5), pm.HalfNormal("height", 1)
        process = pm.gp.HSGP(m=[4], L=[1.5], cov_func=covariance(length, height))
        if linearised:
            basis, power = process.prior_linearized(x)
            z = pm.Normal("z", 0, 1, shape=4)
            curve = basis @ (z * power)
        else:
            curve = process.prior("f", X=x)
        pm.Normal("y", curve, 1, observed=np.zeros(20))
    [(z, parents)] = parents_of(model, set(model.free_RVs)).items()
    assert z.type.shape == (4,)
    at = {length: np.array(0.7), height: np.array(1.3)}
    density = process.cov_func.power_spectral_density(np.pi * np.arange(1, 5)[:, None] / 3)
    found, expected = (g.eval(at, mode=INTERPRETER) for g in (parents.scale, pt.sqrt(density)))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_other_priors_and_steps():
    with pm.Model() as model:
        mu, sd = pm.Normal("mu"), pm.HalfNormal("sd")
        wide = pm.Normal("wide", 0, 2, shape=3)
        z = pm.Normal("z", 0, 1, shape=3)
        pm.Normal("y", mu + sd * wide + sd * z, 1, observed=np.zeros(3))
    assert list(parents_of(model, {mu, sd, wide, z})) == [z]
    # The parents belong to another step: nothing to decide between
    assert parents_of(model, {z}) == {}
    assert parents_of(model, {mu, sd}) == {}


def test_a_potential_uses_what_it_is():
    with pm.Model() as model:
        sd = pm.HalfNormal("sd")
        z = pm.Normal("z", 0, 1, shape=3)
        pm.Normal("y", sd * z, 1, observed=np.zeros(3))
        pm.Potential("p", -(z**2))
    assert parents_of(model, {sd, z}) == {}


@pytest.mark.parametrize("standard", [True, False])
def test_a_potential_that_is_an_element_of_a_variable_has_an_end(standard):
    with pm.Model() as model:
        sd = pm.HalfNormal("sd")
        x = pm.Normal("x", 0, 1 if standard else sd, shape=3)
        pm.Potential("p", pm.Deterministic("d", x[0]))
    view = ModelView(model, {sd, x}, {})
    assert view.parents == {}
    assert view.after_copies(model["d"]) is model["p"]


def test_batches_are_random_numbers():
    with pm.Model() as model:
        batch = pm.Minibatch(np.arange(50.0), batch_size=1)
        a, o = pm.Normal("a"), pm.Normal("o", observed=0.0)
        graphs = [batch, batch.mean(), pm.HalfCauchy.dist(1), o, a + 1]
    view = ModelView(model, {a}, {})
    assert [view.draws([x]) for x in graphs] == [True, True, True, True, False]


def test_parents_that_would_go_round():
    """Of two effects in one sum only one can have the other in its location."""
    with pm.Model() as model:
        s, t = pm.HalfNormal("s"), pm.HalfNormal("t")
        a, b = pm.Normal("a", shape=3), pm.Normal("b", shape=3)
        pm.Normal("y", pt.add(s * a, t * b), 1, observed=np.zeros(3))
    found = parents_of(model, set(model.free_RVs))
    assert set(found) == {a, b}
    assert pt.as_tensor(found[b].location).eval(mode=INTERPRETER) == 0

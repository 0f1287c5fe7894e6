"""Models with ``pm.Minibatch`` whose observed variables have the dims of all rows."""

import numpy as np
import pymc as pm
import pytest

import pymc_sgmcmc as sg

from helpers.sampling import run
from pymc_sgmcmc.testing import UNTUNED

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 2))
Y = X @ [1.0, -1.0] + rng.normal(size=60)

DISTRIBUTIONS = {
    "normal": (lambda x, b, **of: pm.Normal("y", x @ b, 1, **of), Y),
    "scalar": (lambda x, b, **of: pm.Normal("y", b.sum(), 1, **of), Y),
    "counts": (
        lambda x, b, **of: pm.Poisson("y", pm.math.exp(x @ b), **of),
        np.abs(Y).astype("int32"),
    ),
    "own": (lambda x, b, **of: pm.CustomDist("y", x @ b, logp=log_density, **of), Y),
    "rows of two": (
        lambda x, b, **of: pm.MvNormal("y", x * b, np.eye(2), **of),
        np.stack([Y, 2 * Y], axis=1),
    ),
}


def log_density(value, mu):
    return -((value - mu) ** 2)


def shifted(mu, size):
    return pm.Normal.dist(mu, 1, size=size) + 2


def draws(kind, dims):
    write, observed = DISTRIBUTIONS[kind]
    coords = {"obs": range(60), "column": ["a", "b"]}
    with pm.Model(coords=coords):
        x, y = pm.Minibatch(pm.Data("x", X), observed, batch_size=10)
        b = pm.Normal("b", dims="column")
        total_size = (60, None)[: observed.ndim]
        write(x, b, observed=y, total_size=total_size, dims=dims[: observed.ndim] if dims else None)
        step = sg.SGLD(step_size=1e-3, backend="jax", **UNTUNED)
        return run(step, 10, 1, tune=0).posterior["b"]


@pytest.mark.parametrize("kind", DISTRIBUTIONS)
def test_dims_of_all_rows_leave_the_draws_as_they_are(kind):
    np.testing.assert_array_equal(draws(kind, ("obs", "column")), draws(kind, None))


@pytest.mark.filterwarnings("ignore:The potential 'z' depends on a pm.Minibatch")
@pytest.mark.parametrize("as_potential", [False, True])
@pytest.mark.parametrize("own", [False, True])
def test_other_terms_may_depend_on_such_a_variable(own, as_potential):
    def drawn(dims):
        with pm.Model(coords={"obs": range(60)}):
            y, z = pm.Minibatch(Y, 2 * Y, batch_size=10)
            b, how = pm.Normal("b"), {"observed": y, "total_size": 60, "dims": dims}
            if own:
                seen = pm.CustomDist("y", b, dist=shifted, **how)
            else:
                seen = pm.Normal("y", b, 1, **how)
            if as_potential:
                pm.Potential("z", -6 * (z - b * seen[:10]) ** 2)
            else:
                pm.Normal("z", b * seen[:10], 1, observed=z, total_size=60)
            step = sg.SGLD(step_size=1e-3, backend="jax", **UNTUNED)
            return run(step, 10, 1, tune=0).posterior["b"]

    np.testing.assert_array_equal(drawn("obs"), drawn(None))

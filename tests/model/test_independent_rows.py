"""Rows of a pm.Minibatch that depend on each other, or on their place, are refused."""

import tracemalloc

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

import pymc_sgmcmc as sg

from helpers.minibatched_models import MODELS, with_batches
from pymc_sgmcmc.disk.source import Source
from pymc_sgmcmc.model.independent_rows import check_independent_rows, unlike_rows
from pymc_sgmcmc.testing import UNTUNED

N, B = 60, 8
RNG = np.random.default_rng(0)
X, Y, G = RNG.normal(size=(N, 3)), RNG.normal(size=N), np.arange(N) % 4


def batch(*arrays, batch_size=B):
    floats = [x.astype(pytensor.config.floatX) if x.dtype.kind == "f" else x for x in arrays]
    return pm.Minibatch(*floats, batch_size=batch_size)


def normalised_by_its_mean():
    x, y = batch(X[:, 0], Y)
    pm.Normal("y", pm.Normal("a") * (x - x.mean()), observed=y, total_size=N)


def batch_normalisation():
    """Of the hidden layer of a net."""
    x, y = batch(X, Y)
    hidden = x @ pm.Normal("w", shape=(3, 4))
    hidden = (hidden - hidden.mean(axis=0)) / hidden.std(axis=0)
    pm.Normal("y", hidden @ pm.Normal("v", shape=4), observed=y, total_size=N)


def latent_as_long_as_the_batch():
    y = batch(Y)
    pm.Normal("y", pm.Normal("a", shape=B), observed=y, total_size=N)


def scale_of_each_place():
    y = batch(Y)
    pm.Normal("y", pm.Normal("a"), np.linspace(1, 2, B), observed=y, total_size=N)


def trend_over_the_batch():
    y = batch(Y)
    pm.Normal("y", pm.Normal("a") * pt.arange(y.shape[0]), observed=y, total_size=N)


def neighbours_differ():
    x, y = batch(X[:, 0], Y)
    pm.Normal("y", pm.Normal("a") * pt.concatenate([x[:1], x[1:] - x[:-1]]), observed=y,
              total_size=N)  # fmt: skip


def process():
    """A covariance between the rows of the batch."""
    x, y = batch(X, Y)
    mean = pm.Normal("a") + pt.zeros(B)
    pm.MvNormal("y", mean, pm.gp.cov.ExpQuad(3, 1.0)(x) + pt.eye(B), observed=y, total_size=N)


def potential_of_the_mean():
    y = batch(Y)
    pm.Potential("y", -N * (pm.Normal("a") - y.mean()) ** 2)


def second_of_two_terms():
    """Those that are sums are not named."""
    x, y, z = batch(X, Y, G.astype(np.int32))
    a = pm.Normal("a", shape=3)
    pm.Normal("other", x @ a, observed=y, total_size=N)
    pm.Poisson("y", pt.exp(a[0] * pt.cumsum(x[:, 0])), observed=z, total_size=N)


def means_of_pairs():
    """Of so many that no two of some rows share one by chance; a mean over a row is the row."""
    pairs = np.repeat(np.arange(100_000), 2)
    x, y, pair = batch(*np.random.default_rng(1).normal(size=(2, len(pairs))), pairs)
    sums, counts = (
        pt.zeros(100_000)[pair].inc(z.astype(pytensor.config.floatX)) for z in (x, pt.ones_like(x))
    )
    means = (sums / pt.maximum(counts, 1))[pair]
    pm.Normal("y", pm.Normal("a") * (x - means), observed=y, total_size=len(pairs))


def hidden_where_an_effect_is_off():
    x, y = batch(X[:, 0], Y)
    effect = pm.Bernoulli("on", 0.3) * pm.Normal("a")
    pm.Normal("y", effect * (x - x.mean()), observed=y, total_size=N)


def one_of_many_terms():
    """Of more than PyTensor interprets as one sum."""
    x, y = batch(X[:, 0], Y)
    mean = sum(pm.Normal(f"a{k}") * pt.cos(k * x) for k in range(40))
    mean += pm.Normal("a") * (x - x.mean())
    pm.Normal("y", mean, observed=y, total_size=N)


REFUSED = [
    one_of_many_terms, means_of_pairs, hidden_where_an_effect_is_off,
    normalised_by_its_mean, batch_normalisation, latent_as_long_as_the_batch,
    scale_of_each_place, trend_over_the_batch, neighbours_differ, process, potential_of_the_mean,
    second_of_two_terms,
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:The potential:UserWarning")
@pytest.mark.parametrize("build", REFUSED)
def test_rows_that_depend_on_each_other_are_refused(build):
    with pm.Model() as model:
        build()
    match = r"log density of 'y' is not a sum over the rows of a pm\.Minibatch: .* leave pm\.Mini"
    with pytest.raises(ValueError, match=match):
        sg.SGLD(model.continuous_value_vars, model=model, step_size=1e-3, **UNTUNED)


def potentials():
    """A number, a vector, and a mean times the number of rows."""
    x, y = batch(X, Y)
    loss = (x @ pm.Normal("a", shape=3) - y) ** 2
    pm.Potential("number", -N / B * loss.sum())
    pm.Potential("vector", -N / B * loss)
    pm.Potential("mean", -N * loss.mean())


def basis_of_a_process():
    """Another one each time, but a sum over rows."""
    x, y = batch(X[:, :1], Y)
    process = pm.gp.HSGP(m=[5], c=1.5, cov_func=pm.gp.cov.ExpQuad(1, 1.0))
    basis, weights = process.prior_linearized(x)
    pm.Normal("y", basis @ (pm.Normal("b", shape=5) * weights), observed=y, total_size=N)


def net_with_lengths_as_numbers():
    x, y = batch(X, Y)
    hidden = pt.concatenate([pt.ones((B, 1)), x], axis=1).reshape((B, 2, 2)).sum(axis=2)
    pm.Normal("y", pt.tanh(hidden @ pm.Normal("w", shape=2)), observed=y, total_size=N)


def rows_of_time_series():
    """Each row a series, whose times depend on each other."""
    y = batch(X)
    pm.AR("y", pm.Normal("a"), init_dist=pm.Normal.dist(), observed=y, total_size=[N, None])


def few_rows():
    x, y = batch(X[:2], Y[:2], batch_size=1)
    pm.Normal("y", x @ pm.Normal("a", shape=3), observed=y, total_size=2)


def own_gradient():
    x = batch(X)
    sg.GradientPotential(
        "g", lambda a, x, noise: pt.sum(x, axis=0) - a, [pm.Normal("a", shape=3)], [x],
        total_size=N,
    )  # fmt: skip


def zero_probability():
    """Never finite: nothing can be said."""
    pm.Uniform("y", 5, 6 + pm.HalfNormal("a"), observed=batch(Y), total_size=N)


TAKEN = [
    potentials, basis_of_a_process, net_with_lengths_as_numbers, rows_of_time_series, few_rows,
    own_gradient, zero_probability,
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:The potential:UserWarning")
@pytest.mark.parametrize(
    ("build", "floatX"),
    [(build, "float64") for build in [*MODELS, *TAKEN]] + [(build, "float32") for build in TAKEN],
)
def test_sums_over_rows_are_taken(build, floatX):
    with pytensor.config.change_flags(floatX=floatX):
        if build in MODELS:
            model = with_batches(build)
        else:
            with pm.Model() as model:
                build()
        check_independent_rows(model)


@pytest.mark.parametrize(("build", "compared"), [(few_rows, True), (zero_probability, False)])
def test_it_is_said_whether_densities_were_compared(build, compared):
    with pm.Model() as model:
        build()
    assert check_independent_rows(model) is compared


def test_a_rare_event_does_not_hide_that_rows_depend_on_each_other():
    x, event = np.random.default_rng(0).normal(size=2000), np.zeros(2000)
    event[1234] = 1
    with pm.Model() as model:
        eta = pm.Normal("b") * x
        pm.Potential("cox", event * (eta - pt.log(pt.cumsum(pt.exp(eta)))))
    with pytest.raises(ValueError, match="density of 'cox' is not a sum over the rows"):
        sg.CoRVSGLD(model=model, batch_size=100)


def changed_from_a_row_on(x, effect):
    return pt.inc_subtensor((x * pm.Normal("a"))[900:], effect)


def changed_before_the_last_rows(x, effect):
    return pt.inc_subtensor((x * pm.Normal("a"))[:-900], effect)


def joined_parts(x, effect):
    return pt.concatenate([x[:900], x[900:] + effect])


def compared_with_a_number(x, effect):
    return x + effect * (pt.arange(x.shape[0]) >= 900)


def compared_with_a_parameter(x, effect):
    return x + effect * pm.math.sigmoid(pt.arange(x.shape[0]) - pm.Uniform("tau", 0, 2000))


def in_blocks(x, effect):
    return x + (effect * pm.Normal("a", shape=5))[pt.arange(x.shape[0]) // 400]


def far_neighbours(x, effect):
    return effect * pt.roll(x, 900)


@pytest.mark.parametrize("in_container", [False, True])
@pytest.mark.parametrize(
    "mean",
    [
        changed_from_a_row_on, changed_before_the_last_rows, joined_parts, compared_with_a_number,
        compared_with_a_parameter, in_blocks, far_neighbours,
    ],
)  # fmt: skip
def test_places_that_few_rows_do_not_have_are_seen(mean, in_container):
    x, y = np.random.default_rng(0).normal(size=(2, 2000))
    with pm.Model() as model:
        column = pm.Data("x", x) if in_container else pt.as_tensor(x)
        pm.Normal("y", mean(column, pm.Normal("effect")), observed=y)
    with pytest.raises(ValueError, match="density of 'y' is not a sum over the rows"):
        sg.CoRVSGLD(model=model, batch_size=100)


@pytest.mark.parametrize("size", [1e2, 1e4, 1e6, 1e8])
def test_one_row_of_huge_density_does_not_hide_that_rows_depend_on_each_other(size):
    """The log density of a rate of exp(size) hides the others', until the point is near enough."""
    x = np.random.default_rng(0).normal(scale=size, size=2000)
    with pm.Model() as model:
        eta = pm.Normal("b", sigma=1 / size) * pt.concatenate([[0.0], pm.Data("x", x)[:-1]])
        pm.Poisson("y", pt.cosh(eta), observed=np.ones(2000, int))
    with pytest.raises(ValueError, match="density of 'y' is not a sum over the rows"):
        sg.CoRVSGLD(model=model, batch_size=100)


def test_it_is_logged_where_rows_could_not_be_compared(caplog):
    with pm.Model() as model:
        zero_probability()
    sg.SGLD(model=model, step_size=0.1, backend="jax", **UNTUNED)
    assert "the rows of a pm.Minibatch are independent could not be tested" in caplog.text


@pytest.mark.parametrize("floatX", ["float64", "float32"])
@pytest.mark.parametrize("unit", [1.0, 1e3, 1e6])
def test_units_do_not_hide_that_rows_depend_on_each_other(floatX, unit):
    """A slope that begins at 0 is moved in units of its prior, beside which y is as large."""
    x = np.random.default_rng(0).random(2000)
    y = unit * (3 + np.r_[x[0], x[:-1]] + np.random.default_rng(1).normal(size=2000))
    with pytensor.config.change_flags(floatX=floatX), pm.Model() as model:
        x = pm.Data("x", x.astype(floatX))
        a, b = pm.Normal("a", 3 * unit, unit), pm.Normal("b", 0, unit)
        lag = pt.concatenate([x[:1], x[:-1]])
        pm.Normal("y", a + b * lag, pm.HalfNormal("s", unit), observed=y.astype(floatX))
        with pytest.raises(ValueError, match="density of 'y' is not a sum over the rows"):
            sg.CoRVSGLD(model=model, batch_size=100)
        # By itself it takes no batches
        assert sg.CoRVSGLD(model=model).options.batch_size is None


@pytest.mark.parametrize("floatX", ["float64", "float32"])
@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_large_units_and_offsets_are_no_dependence(floatX, offset):
    """Rounding of sums is no sign of it."""
    rng = np.random.default_rng(2)
    X = (offset + rng.normal(size=(5000, 4))).astype(floatX)
    y = (1e6 * (X @ [1, -1, 2, 0.5]) + 1e5 * rng.normal(size=5000)).astype(floatX)
    with pytensor.config.change_flags(floatX=floatX), pm.Model() as model:
        b = pm.Normal("b", 0, 1e6, shape=4)
        s = pm.HalfNormal("s", 1e6)
        pm.Normal("y", pm.Data("X", X) @ b, s, observed=y)
    assert sg.CoRVSGLD(model=model, batch_size=100).options.batch_size == 100


def test_many_rows_on_disk_are_compared(tmp_path):
    """Of six rows most have no event, and then nothing shows that risk sets are of all rows."""
    rng = np.random.default_rng(0)
    np.save(tmp_path / "x.npy", rng.normal(size=20_000))
    np.save(tmp_path / "event.npy", (rng.random(20_000) < 0.03).astype(float))
    with pm.Model() as model:
        x, event = pm.Minibatch(
            *(sg.on_disk(tmp_path / f"{name}.npy") for name in ("x", "event")), batch_size=500
        )
        eta = pm.Normal("b") * x
        pm.Potential("cox", 40 * event * (eta - pt.log(pt.cumsum(pt.exp(eta)))))
    with (
        pytest.warns(UserWarning, match="The potential 'cox'"),
        pytest.raises(ValueError, match="density of 'cox' is not a sum over the rows"),
    ):
        sg.CoRVSGLD(model=model)


class Unread(Source):
    read = _printed = None


def test_few_of_many_rows_on_disk_take_little_memory():
    source = Unread("x", (10**8,), "float64")
    tracemalloc.start()
    try:
        numbers = unlike_rows([source], 12, np.random.default_rng(0))
        assert tracemalloc.get_traced_memory()[1] < 10**6
    finally:
        tracemalloc.stop()
    assert len(set(numbers.tolist())) == 12

"""What tells two runs apart: the user's own functions and operations, too."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import pymc as pm
import pytest

from pymc.distributions import transforms as of_pymc
from pytensor import tensor as pt
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.sparse import as_sparse_variable, structured_dot
from scipy.sparse import csr_matrix

import pymc_sgmcmc as sg

from pymc_sgmcmc.store.fingerprint import differences, fingerprint

Y = np.arange(5.0)


def lines(likelihood, **options):
    with pm.Model() as model:
        likelihood(pm.Normal("mu"))
        return fingerprint(model, [sg.CoRVSGLD(**options)])


def square(factor):
    return lambda value, mu: -factor * (value - mu) ** 2


def own_density(logp):
    return lambda mu: pm.CustomDist("y", mu, logp=logp, observed=Y)


def own_density_of_a_draw(factor):
    def draw(mu, size):
        return pm.Normal.dist(mu, 1, size=size)

    return lambda mu: pm.CustomDist("y", mu, dist=draw, logp=square(factor), observed=Y)


def own_density_in_a_mixture(factor):
    def likelihood(mu):
        parts = [pm.CustomDist.dist(mu, logp=square(f)) for f in (1.0, factor)]
        pm.Mixture("y", [0.5, 0.5], parts, observed=Y)

    return likelihood


class Shift(Op):
    """An operation that does not say in what it differs from others of its kind."""

    def __init__(self, by):
        self.by = by

    def make_node(self, x):
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, outputs):
        outputs[0][0] = np.asarray(inputs[0] + np.sum(self.by))

    def pullback(self, inputs, outputs, cotangents):
        return cotangents


def own_operation(by):
    return lambda mu: pm.Potential("y", -pt.sqr(Shift(by)(mu)))


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        (own_density(square(1.0)), own_density(square(2.0)), "the density of 'y' differs"),
        (
            own_density(lambda value, mu: -((value - mu) ** 2)),
            own_density(lambda value, mu: -((value - mu) ** 4)),
            "the density of 'y' differs",
        ),
        (own_density_of_a_draw(1.0), own_density_of_a_draw(2.0), "the density of 'y' differs"),
        (
            own_density_in_a_mixture(1.0),
            own_density_in_a_mixture(2.0),
            "the density of 'y' differs",
        ),
        (own_operation(1.0), own_operation(2.0), "the model's 'y' differs"),
        (own_operation(np.zeros(3)), own_operation(np.ones(3)), "the model's 'y' differs"),
    ],
)
def test_the_users_own_likelihoods_are_told_apart(one, other, said):
    assert differences(lines(one), lines(other)) == [said]
    assert not differences(lines(one), lines(one))


@pytest.mark.parametrize("shared", [False, True])
def test_sparse_designs_are_compared_by_their_numbers(shared):
    """Not by the place in memory: a run goes on in another process."""

    def of(matrix):
        def likelihood(mu):
            x = pm.Data("x", matrix) if shared else as_sparse_variable(matrix)
            pm.Normal("y", structured_dot(x, pt.fill(np.ones((5, 1)), mu)), observed=Y[:, None])

        return lines(likelihood)

    one, other = csr_matrix(np.eye(5)), csr_matrix(np.diag([1.0, 1, 1, 1, 2]))
    assert differences(of(one), of(other)) == ["the data of 'y' differ"]
    assert not differences(of(one), of(one.copy()))


@pytest.mark.parametrize("disk", [False, True])
def test_the_places_of_arrays_count(tmp_path, disk):
    """Of the same arrays, without names that would tell them apart."""
    rng = np.random.default_rng(0)
    paths = [tmp_path / "age.npy", tmp_path / "income.npy"]
    for path in paths:
        np.save(path, rng.normal(size=len(Y)))

    def of(squared):
        x = [sg.on_disk(path) if disk else pt.as_tensor(np.load(path)) for path in paths]
        with pm.Model() as model:
            a, b, c = (pm.Normal(name) for name in "abc")
            pm.Normal("y", c * x[squared] ** 2 + a * x[0] + b * x[1], observed=Y)
        return fingerprint(model, [])

    assert differences(of(0), of(1)) == ["the model's 'y' differs"]
    assert not differences(of(0), of(0))


def by_closure(h):
    return lambda t: h + 0 * t


def by_default(h):
    return lambda t, h=h: h + 0 * t


def by_inner_function(h):
    def inner(t):
        return h + 0 * t

    return lambda t: 1.0 * inner(t)


def by_partial(h):
    return partial(lambda t, h: h + 0 * t, h=h)


@dataclass
class OwnSchedule:
    of: Callable

    def __call__(self, t):
        return self.of(t)


def by_dataclass(h):
    return OwnSchedule(by_closure(h))


@pytest.mark.parametrize(
    "schedule", [by_closure, by_default, by_inner_function, by_partial, by_dataclass]
)
def test_schedules_of_the_users_own_are_told_apart(schedule):
    def of(h):
        return lines(own_density(square(1.0)), step_size=schedule(h))

    [said] = differences(of(0.1), of(0.2))
    assert said.startswith("step_size= of step method 0 was ")
    assert not differences(of(0.1), of(0.1))


def whitening(factor):
    return lambda root: factor * root


def whitening_by_partial(factor):
    return partial(np.multiply, factor)


def whitening_of_two(factor):
    """Two runs that ask for the same covariance of ψ are the same run."""
    return lambda root: factor * root @ np.diag(np.sign(factor) * np.ones(len(root)))


@pytest.mark.parametrize("made", [whitening, whitening_by_partial, whitening_of_two])
def test_whitenings_of_the_users_own_are_told_apart(made):
    def of(factor):
        return lines(own_density(square(1.0)), scale=made(factor))

    [said] = differences(of(0.1), of(0.2))
    assert said.startswith("scale= of step method 0 was ")
    assert not differences(of(0.1), of(0.1))
    assert made is whitening_by_partial or not differences(of(0.1), of(-0.1))


def test_a_whitening_that_no_other_root_suits_counts_by_its_name():
    def fussy(root):
        raise ValueError("of 7 groups only")

    was, now = (lines(own_density(square(1.0)), scale=fussy) for _ in range(2))
    assert not differences(was, now)
    assert differences(was, lines(own_density(square(1.0)), scale=whitening(1.0)))


def test_transforms_by_name_are_told_as_the_argument_that_they_are():
    def of(transform):
        return lines(own_density(square(1.0)), transforms={"mu": transform})

    [said] = differences(of(sg.transforms.Centring()), of(None))
    assert said.startswith("transforms= of step method 0 was {'mu': Centring")


def bounds_of_each_element(upper):
    bounds = np.zeros(2), np.array([1.0, upper])
    return of_pymc.Interval(bounds_fn=lambda *_: bounds)


@pytest.mark.parametrize(
    ("made", "one", "other"),
    [
        (of_pymc.Interval, [-1, 1], [-2, 2]),
        (lambda *bounds: of_pymc.Chain([of_pymc.log, of_pymc.Interval(*bounds)]), [-1, 1], [-1, 2]),
        (lambda first: of_pymc.Chain([first]), [of_pymc.log], [of_pymc.log_exp_m1]),
        (bounds_of_each_element, [1.0], [2.0]),
    ],
)
def test_transforms_of_a_model_are_told_apart(made, one, other):
    def of(parts):
        with pm.Model() as model:
            pm.Normal("x", shape=2, transform=made(*parts))
        return fingerprint(model, [])

    assert differences(of(one), of(other)) == ["the transform of 'x' differs"]
    assert not differences(of(one), of(one))


def test_a_name_without_a_value_yet():
    def schedule(t):
        return 0.1 + 0 * t if np.size(t) else later

    assert "later" in schedule.__code__.co_freevars
    was, now = (lines(own_density(square(1.0)), step_size=schedule) for _ in range(2))
    assert not differences(was, now)
    later = 0.2


HEIGHT = 0.1


def of_global(t):
    return HEIGHT + 0 * t if HEIGHT else of_global(t)


def test_a_number_outside_of_a_function_counts(monkeypatch):
    was = lines(own_density(square(1.0)), step_size=of_global)
    monkeypatch.setitem(globals(), "HEIGHT", 0.2)
    assert differences(was, lines(own_density(square(1.0)), step_size=of_global))


@pytest.mark.parametrize("other", [np.s_[:2], np.s_[::2]])
def test_parts_of_a_variable_are_told_apart(other):
    def of(part):
        with pm.Model() as model:
            pm.Normal("y", pt.sum(pm.Normal("b", shape=4)[part]), observed=Y)
        return fingerprint(model, [])

    assert differences(of(np.s_[2:]), of(other)) == ["the model's 'y' differs"]
    assert not differences(of(other), of(other))

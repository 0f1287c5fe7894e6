"""Data that index beyond the end of an array are refused by name, over all rows."""

import time

from contextlib import nullcontext

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

import pymc_sgmcmc as sg

from helpers.steps import start
from pymc_sgmcmc.model.data_checks import check_indices
from pymc_sgmcmc.testing import UNTUNED

N = 60
Y = np.random.default_rng(0).normal(size=N)
G = np.arange(N) % 4
# The last row alone is beyond the end
BEYOND = np.append(G[:-1], 4)


def minibatch(g, tmp_path):
    g, y = pm.Minibatch(g, Y, batch_size=7)
    pm.Normal("y", pm.Normal("a", shape=4)[g], observed=y, total_size=N)


def dim_of_rows(g, tmp_path):
    g = pm.Data("g", g, dims="obs")
    pm.Normal("y", pm.Normal("a", dims="group")[g], observed=Y, dims="obs")


def all_rows(g, tmp_path):
    pm.Normal("y", pm.Normal("a", dims="group")[g], observed=Y)


def computed(g, tmp_path):
    """With arithmetic, of a minibatch of a container; along the second axis of an expression."""
    g, y = pm.Minibatch(pm.Data("g", g + 1), Y, batch_size=7)
    a = pm.HalfNormal("sd") * pm.Normal("a", shape=(2, 4))
    pm.Normal("y", a[1, g - 1], observed=y, total_size=N)


def of_a_prior(g, tmp_path):
    """What the likelihood indexes is right; groups belong to groups of their own."""
    upper = pm.Normal("a", dims="group")[pm.Data("of_group", g[-3:])]
    pm.Normal("y", pm.Normal("effects", upper)[G % 3], observed=Y)


def own_density(g, tmp_path):
    def logp(value, a, g):
        return -((value - pt.take(a, g, axis=-1)) ** 2)

    g, y = pm.Minibatch(g, Y, batch_size=7)
    a = pm.Normal("a", shape=4)
    pm.CustomDist("y", a, g, logp=logp, observed=y, total_size=N, signature="(g),()->()")


def own_prior(g, tmp_path):
    """A density that the user wrote of its own elements: their number is that of a dim."""
    pm.CustomDist("a", 1.0, logp=lambda a, s: -pt.sum((a[g] - Y) ** 2) - a**2 / s, dims="group")


def own_simplex(g, tmp_path):
    """Its coordinates are one fewer than its entries."""

    def logp(p, s):
        return pt.sum(pt.log(p[g]))

    simplex = pm.distributions.transforms.simplex
    pm.CustomDist("a", 1.0, logp=logp, transform=simplex, shape=4, initval=np.full(4, 0.25))


def written(g, tmp_path):
    totals = pt.zeros(4)[g].inc(pm.Normal("a"))
    pm.Potential("p", -(totals**2))


def in_pairs(g, tmp_path):
    """Two index arrays, and positions in the batch, whose length is not that of the data."""
    g, y = pm.Minibatch(g, Y, batch_size=7)
    rows = pt.outer(y, pm.Normal("a", shape=4))
    pm.Normal("y", rows[pt.arange(y.shape[0]), g], observed=y, total_size=N)


def on_disk(g, tmp_path):
    np.save(tmp_path / "g.npy", g.astype(np.int32))
    g, y = pm.Minibatch(sg.on_disk(tmp_path / "g.npy"), Y, batch_size=7)
    pm.Normal("y", pm.Normal("a", shape=4)[g], observed=y, total_size=N)


MODELS = [
    (minibatch, r"The index of shape \(60,\) has .* the end of 'a'"),
    (dim_of_rows, r"The index 'g' has .* the end of 'a'"),
    (all_rows, r"The index of shape \(60,\) has .* the end of 'a'"),
    (computed, r"The index 'g' has .* the end of an array of '.*'"),
    (of_a_prior, r"The index 'of_group' has the value 4 in row 2, .* the end of 'a'"),
    (own_density, r"The index of shape \(60,\) has .* the end of an array of 'a'"),
    (own_prior, r"The index of shape \(60,\) has .* the end of 'a'"),
    (own_simplex, r"The index of shape \(60,\) has .* the end of 'a'"),
    (written, r"The index of shape \(60,\) has .* the end of an array of numbers"),
    (in_pairs, r"The index of shape \(60,\) has .* the end of an array of 'a'"),
    (on_disk, r"The index 'g' has .* the end of 'a'"),
]


@pytest.mark.parametrize(("build", "match"), MODELS)
def test_an_index_beyond_the_end_is_refused(build, match, tmp_path):
    """By the name of the array and of what it indexes, with row, value and length."""
    options = {"batch_size": 7, "batch_dim": "obs"} if build is dim_of_rows else {}
    with pm.Model(coords={"group": range(4), "obs": range(N)}):
        build(BEYOND, tmp_path)
        with pytest.raises(ValueError, match=match) as raised:
            sg.SGLD(step_size=1e-3, **UNTUNED, **options)
    assert "has the value 4 in row" in str(raised.value)
    assert "whose 4 entries have the numbers 0 to 3" in str(raised.value)
    if build is not of_a_prior:
        assert "in row 59," in str(raised.value)


@pytest.mark.parametrize("largest", [32_767, 32_768])
def test_an_index_that_pymc_cuts_off_is_refused(largest):
    with pytensor.config.change_flags(floatX="float32"), pm.Model() as model:
        g = pm.Data("g", np.array([0, largest]))
        pm.Normal("y", pm.Normal("a", shape=40_000)[g], observed=np.zeros(2, "float32"))
    cut_off = pytest.raises(ValueError, match=r"The index 'g' has 16 bits .*Use the array itself")
    with cut_off if largest > 32_767 else nullcontext():
        check_indices(model)


@pytest.mark.parametrize("build", [build for build, _ in MODELS])
def test_an_index_from_either_end_is_taken(build, tmp_path):
    """The numbers from -4 to -1 stand for entries too."""
    with pm.Model(coords={"group": range(4), "obs": range(N)}) as model:
        build(np.append(G[:-1], -4), tmp_path)
    check_indices(model)


@pytest.mark.parametrize("drawn", [True, False])
def test_new_data_are_checked(drawn):
    with pm.Model(coords={"group": range(4), "obs": range(N)}):
        dim_of_rows(G, None)
        step = sg.SGLD(step_size=1e-3, **UNTUNED)
        if drawn:
            step.step(start(step, 0, 1))
        pm.set_data({"g": BEYOND})
        with pytest.raises(ValueError, match=r"The index 'g' has the value 4 in row 59"):
            start(step, 0, 1)


def test_many_rows_cost_a_look_at_their_extremes():
    """Four times what NumPy takes for both, and what the graph costs."""
    g = np.zeros(10_000_000, dtype=np.int32)
    with pm.Model() as model:
        g_of_batch, y = pm.Minibatch(g, np.zeros(len(g)), batch_size=7)
        pm.Normal("y", pm.Normal("a", shape=4)[g_of_batch], observed=y, total_size=len(g))
    spent = []
    for look in (lambda: (g.min(), g.max()), lambda: check_indices(model)):
        check_indices(model)
        start = time.perf_counter()
        look()
        spent.append(time.perf_counter() - start)
    assert spent[1] < 4 * spent[0] + 0.1

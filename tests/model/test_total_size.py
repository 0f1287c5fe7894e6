"""A total_size= that is not the number of rows is told."""

import re

import numpy as np
import pymc as pm
import pytest

import pymc_sgmcmc as sg

from pymc_sgmcmc.testing import UNTUNED

Y = np.zeros(30)


def potential_of(total_size, of=1):
    with pm.Model() as model:
        y = pm.Minibatch(pm.Data("data", Y), batch_size=10)
        x = pm.Normal("x")
        sg.GradientPotential(
            "g", lambda x, y, noise: (y - x).sum(), [x], [y], total_size=total_size
        )
        pm.set_data({"data": np.tile(Y, of)})
    return model


def with_total_size(total_size, *, batched=True, data=False):
    with pm.Model() as model:
        y = pm.Data("data", Y) if data else Y
        if data:
            total_size = [total_size * y.shape[0]]
        y = pm.Minibatch(y, batch_size=10) if batched else y
        pm.Normal("y", pm.Normal("x"), observed=y, total_size=total_size)
    return model


@pytest.mark.parametrize(
    ("build", "match"),
    [
        (
            lambda: with_total_size(300),
            "'y' has total_size=300, but its pm.Minibatch draws from 30",
        ),
        (lambda: with_total_size(3), "the likelihood counts 0.1 times what they say"),
        (lambda: with_total_size(10, data=True), "'y' has total_size=300, .* draws from 30 rows"),
        (lambda: with_total_size(300, batched=False), "total_size=300, but it has all of its 30"),
        (lambda: potential_of(300), "potential 'g' has total_size=300, .* from 30 rows"),
        (
            lambda: potential_of(30, of=3),
            r"potential 'g' has total_size=30, .* from 90 rows: .* 0.333 .*total_size=90\.",
        ),
    ],
)
def test_a_total_size_that_is_off_is_told_with_the_number_of_rows(build, match):
    with pytest.warns(UserWarning, match=match) as told:
        sg.SGLD(model=build(), step_size=0.1, backend="jax", **UNTUNED)
    assert any(re.search("Pass total_size=[39]0(, or|.$)", str(x.message)) for x in told)

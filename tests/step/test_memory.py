"""What is said of memory before sampling."""

import logging

import numpy as np
import pymc as pm
import pytest

import pymc_sgmcmc as sg


@pytest.mark.parametrize("by_dims", [False, True])
def test_draws_that_fill_the_memory_are_told_before_sampling(caplog, by_dims):
    with pm.Model(coords={"weight": np.arange(200_000)}):
        pm.Normal("w", **({"dims": "weight"} if by_dims else {"shape": 200_000}))
        pm.Normal("b")
        with caplog.at_level(logging.WARNING):
            sg.MSGNHT()
    (said,) = (r.getMessage() for r in caplog.records)
    assert said.startswith("1,000 draws of w, b take 1.6 GB")
    assert "var_names=" in said


def test_usual_models_are_told_nothing(caplog):
    with pm.Model():
        pm.Normal("w", shape=10_000)
        with caplog.at_level(logging.DEBUG):
            sg.MSGNHT()
    assert not caplog.records

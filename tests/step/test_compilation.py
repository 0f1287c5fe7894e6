"""Compilation that takes long is told before it happens."""

from __future__ import annotations

import logging

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_sgmcmc as sg

from pymc_sgmcmc.step import notices


@pytest.mark.parametrize("kept", [False, True])
def test_a_matrix_product_in_a_deterministic_is_told_once_on_a_machine(monkeypatch, caplog, kept):
    monkeypatch.setattr(notices, "_is_kept", lambda: kept)
    with pm.Model():
        beta = pm.Normal("beta", shape=3)
        pm.Deterministic("linear", np.ones((5, 3)) @ beta)
        pm.Deterministic("twice", 2 * beta)
        with caplog.at_level(logging.INFO, "pymc.sgmcmc"):
            sg.CoRVSGLD()
    told = [r.getMessage() for r in caplog.records if "matrix product" in r.getMessage()]
    assert len(told) == (not kept)
    assert all("linear" in message and "twice" not in message for message in told)


@pytest.mark.slow
def test_a_compiled_matrix_product_is_found_where_pytensor_keeps_it():
    x = pt.dmatrix("x")
    pm.compile([x], x @ x, mode="NUMBA")(np.eye(2))
    assert notices._is_kept()

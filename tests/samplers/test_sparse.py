"""Simplexes and gamma variables most of whose mass is near 0: exact laws, nothing set."""

import logging

import numpy as np
import pymc as pm
import pytest

from scipy import stats

import pymc_sgmcmc as sg

from helpers.sampling import run
from helpers.z_scores import STANDARD_ERRORS

# Of 2,000 draws, at the least 1,000 are effective
EFFECTIVE = 1000


def counts_of_the_paper():
    """Figure 1(a) of the paper on mirrored Langevin dynamics."""
    counts = np.array([10_000, 10, 10, *[0] * 8])
    p = pm.Dirichlet("x", np.full(11, 0.1))
    pm.Multinomial("counts", counts.sum(), p, observed=counts)
    return stats.beta(counts + 0.1, (counts + 0.1).sum() - counts - 0.1)


def rare_among_empty():
    """Five counts of 100,000, and eight cells without any."""
    counts = np.array([*[0] * 4, 99_995, 5, *[0] * 4])
    p = pm.Dirichlet("x", np.full(10, 0.1))
    pm.Multinomial("counts", counts.sum(), p, observed=counts)
    return stats.beta(counts + 0.1, (counts + 0.1).sum() - counts - 0.1)


def prior_alone():
    pm.Dirichlet("x", np.full(5, 0.1))
    return stats.beta(np.full(5, 0.1), 0.4)


def rates():
    """Without an event, with few and with many, in units far from those of a sparse prior."""
    events = np.array([0, 0, 1, 50, 10_000])
    rate = pm.Gamma("x", 0.1, 0.1, shape=5)
    pm.Poisson("events", 1000 * rate, observed=events)
    return stats.gamma(events + 0.1, scale=1 / 1000.1)


def sparse_gammas():
    pm.Gamma("x", [0.1, 0.3, 3.0], 2.0)
    return stats.gamma([0.1, 0.3, 3.0], scale=0.5)


METHODS = {"SMLD": sg.SMLD, "CoRVSGLD": sg.CoRVSGLD, "MSGNHT": sg.MSGNHT}
QUICK = [(counts_of_the_paper, "SMLD")]


@pytest.mark.parametrize(
    ("build", "method"),
    [
        pytest.param(build, method, marks=[] if (build, method) in QUICK else pytest.mark.slow)
        for build in (counts_of_the_paper, rare_among_empty, prior_alone, rates, sparse_gammas)
        for method in METHODS
    ],
)
def test_deciles_of_sparse_laws(build, method, caplog):
    with pm.Model() as model:
        law = build()
    with model, caplog.at_level(logging.WARNING, logger="pymc"):
        step = METHODS[method](backend="jax")
    draws = run(step).posterior["x"].values.reshape(2000, -1)
    below = np.stack([(draws < law.ppf(share)).mean(axis=0) for share in np.arange(1, 10) / 10])
    edges = np.zeros((1, draws.shape[1]))
    shares = np.diff(np.concatenate([edges, below, 1 + edges]), axis=0)
    distance = np.abs(shares - 0.1).sum(axis=0) / 2
    # The distance of independent draws from their law, in expectation, and its sd
    expected, sd = 5 * np.sqrt(2 / np.pi * 0.09), np.sqrt(2.5 * (1 - 2 / np.pi) * 0.09)
    assert np.all(distance < (expected + STANDARD_ERRORS * sd) / np.sqrt(EFFECTIVE)), distance
    assert "While tuning" not in caplog.text

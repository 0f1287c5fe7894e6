"""Few groups in few batches: the sd of their effects is near 0, where one batch says little."""

import numpy as np
import pymc as pm
import pytest

from scipy.special import softmax

import pymc_sgmcmc as sg

from helpers.z_scores import STANDARD_ERRORS, mean_and_error, means_of_parts

GROUPS, EACH, NOISE = 8, 500, 2.1
LEVELS = np.array([0.1, 0.5, 0.9, 0.95])


def rows():
    rng = np.random.default_rng(0)
    group = rng.integers(0, GROUPS, GROUPS * EACH)
    return group, 0.5 + rng.normal(0, NOISE, len(group))


def quantiles():
    """Return those of the sd: given it the groups' means are normal, and the level too."""
    group, y = rows()
    count = np.bincount(group)
    mean = np.bincount(group, y) / count
    sd = np.exp(np.linspace(-14, 1.5, 2001))
    precision = 1 / (sd[:, None] ** 2 + NOISE**2 / count)
    total = precision.sum(axis=1) + 1
    level = (precision @ mean) / total
    evidence = (np.log(precision).sum(axis=1) - precision @ mean**2 + level**2 * total) / 2
    # The priors are N(0, 1) and half normal, and ds = s d log s
    weight = softmax(evidence - np.log(total) / 2 - sd**2 / 2 + np.log(sd))
    return np.interp(LEVELS, np.cumsum(weight), sd)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_each_chain_is_right(seed):
    group, y = rows()
    with pm.Model():
        level, sd = pm.Normal("level"), pm.HalfNormal("sd")
        effect = sd * pm.Normal("z", shape=GROUPS)
        pm.Normal("y", level + effect[group], NOISE, observed=y)
        result = pm.sample(
            step=sg.CoRVSGLD(batch_size=100), chains=2, random_seed=seed, progressbar=False
        )
    for chain in result.posterior["sd"].values:
        below = chain[None, :, None] < quantiles()
        share, error = mean_and_error(means_of_parts(below))
        assert np.all(np.abs(share - LEVELS) < STANDARD_ERRORS * error), (share, error)

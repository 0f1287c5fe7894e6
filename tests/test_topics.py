"""The gradient of the notebooks' topic models, on documents whose topics can be enumerated."""

import importlib.util

from itertools import product
from pathlib import Path

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

from scipy.special import gammaln

from helpers.z_scores import STANDARD_ERRORS

FILE = Path(__file__).parents[1] / "notebooks/reproductions/topics.py"
ALPHA = 0.7
PI = np.random.default_rng(0).dirichlet(np.ones(4), 2)
WORDS = np.array([[0, 1, 1, 3, 2], [2, 3, 0, -1, -1], [1, 1, 1, 0, -1]])


@pytest.fixture(scope="module")
def topics():
    spec = importlib.util.spec_from_file_location("topics", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Uniforms:
    """Stands for the noise of a GradientPotential."""

    def __init__(self):
        self.inputs = []

    def uniform(self, shape):
        self.inputs.append(pt.tensor(shape=tuple(shape), dtype="float64"))
        return self.inputs[-1]


def expected_counts():
    """E[n_kw | words], over all topics of all words of each document."""
    counts = np.zeros_like(PI)
    for row in WORDS:
        document = row[row >= 0]
        found = np.zeros_like(PI)
        for each in product(range(len(PI)), repeat=len(document)):
            z = np.array(each)
            n = np.bincount(z, minlength=len(PI))
            p = np.exp(gammaln(ALPHA + n).sum()) * PI[z, document].prod()
            np.add.at(found, (z, document), p)
        counts += found / found.sum() * len(document)
    return counts


@pytest.mark.parametrize("softmax", [False, True])
def test_mean_gradient_is_that_of_all_assignments(topics, softmax):
    replicates, times = 50, 100
    noise, symbol = Uniforms(), pt.tensor(shape=PI.shape, dtype="float64")
    rows = pt.as_tensor(np.tile(WORDS, (replicates, 1)))
    estimate = topics.gradient(ALPHA, sweeps=12, burn_in=6, softmax=softmax)
    graph = estimate(symbol, rows, noise)
    gradient = pytensor.function([symbol, *noise.inputs], graph, mode="JAX")
    rng = np.random.default_rng(1)
    shapes = [u.type.shape for u in noise.inputs]
    value = np.log(PI) if softmax else PI
    found = np.array(
        [gradient(value, *[rng.uniform(size=s) for s in shapes]) for _ in range(times)]
    )
    counts = expected_counts()
    exact = counts - counts.sum(axis=1, keepdims=True) * PI if softmax else counts / PI
    error = found.std(axis=0, ddof=1) / np.sqrt(times) / replicates
    assert np.all(abs(found.mean(axis=0) / replicates - exact) < STANDARD_ERRORS * error)


def test_documents_are_padded(topics):
    words = topics.padded(np.array([0, 2, 0, 2, 2]), np.array([5, 6, 7, 8, 9]))
    np.testing.assert_array_equal(words, [[5, 7, -1], [6, 8, 9]])


def test_perplexity_of_one_topic_is_that_of_its_words(topics):
    pi = np.array([[0.5, 0.25, 0.25]])
    words = np.array([[0, 0, 2, 1], [1, 2, -1, -1]])
    expected = np.exp(-np.log([0.5, 0.25, 0.25]).mean())
    assert topics.perplexity(pi[None], words, ALPHA)[0] == pytest.approx(expected)

"""Log probabilities of classes: the same density and gradient, without division and scatter."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

from pytensor.graph.traversal import ancestors
from pytensor.tensor.subtensor import AdvancedIncSubtensor

from pymc_sgmcmc.model.classes import log_softmax_of_classes
from pymc_sgmcmc.model.graphs import canonical

ROWS, CLASSES = 40, 6


def logp(by, labels):
    """Return the scores' symbol and the log likelihood of labels, as PyMC writes it."""
    with pm.Model() as model:
        scores = pm.Flat("scores", shape=(ROWS, CLASSES))
        given = scores if by == "logit_p" else pm.math.softmax(scores, axis=-1)
        pm.Categorical("y", **{by: given}, observed=labels)
    return model.value_vars[0], model.logp(vars=model.observed_RVs)


@pytest.mark.parametrize("by", ["logit_p", "p"])
@pytest.mark.parametrize("size", [1, 1000])
def test_density_and_gradient_are_exact_also_where_a_probability_is_zero(by, size):
    rng = np.random.default_rng(1)
    labels = rng.integers(0, CLASSES, ROWS)
    scores, density = logp(by, labels)
    [rewritten] = log_softmax_of_classes([density])
    gradient = canonical([pt.grad(rewritten, scores)])
    at = size * rng.normal(size=(ROWS, CLASSES))
    value, slope = pytensor.function([scores], [rewritten, *gradient])(at)
    # Of a softmax by its definition, in extended precision
    wide = at.astype(np.longdouble)
    logs = wide - wide.max(axis=1, keepdims=True)
    logs -= np.log(np.exp(logs).sum(axis=1, keepdims=True))
    chosen = np.eye(CLASSES)[labels]
    np.testing.assert_allclose(value, float((logs * chosen).sum()), rtol=1e-12)
    np.testing.assert_allclose(slope, (chosen - np.exp(logs)).astype(float), atol=1e-14)
    assert not any(
        x.owner is not None and isinstance(x.owner.op, AdvancedIncSubtensor)
        for x in ancestors(gradient)
    )


@pytest.mark.parametrize("rows", [np.arange(ROWS), np.arange(ROWS)[:, None]])
def test_entries_from_the_end_are_chosen_and_other_rows_are_left_alone(rows):
    x, v = pt.matrix(shape=(ROWS, CLASSES)), pt.tensor(shape=rows.shape)
    entries = np.random.default_rng(2).integers(-CLASSES, CLASSES, rows.shape)
    values = np.random.default_rng(3).normal(size=rows.shape)
    expected = np.zeros((ROWS, CLASSES))
    expected[rows, entries] = values
    order = np.roll(rows, 1, axis=0)
    for at, scatters in ((rows, False), (order, True)):
        [graph] = canonical([pt.zeros_like(x)[at, entries].inc(v)])
        kept = [y for y in ancestors([graph]) if y.owner is not None]
        assert any(isinstance(y.owner.op, AdvancedIncSubtensor) for y in kept) == scatters
    [graph] = canonical([pt.zeros_like(x)[rows, entries].inc(v)])
    found = pytensor.function([x, v], graph, on_unused_input="ignore")(0 * expected, values)
    np.testing.assert_array_equal(found, expected)

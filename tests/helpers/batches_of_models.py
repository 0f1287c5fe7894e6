"""Whether batches of a model's rows make up its density."""

import numpy as np
import pymc as pm

from pymc_sgmcmc.backends.interpreting import INTERPRETER
from pymc_sgmcmc.model.graphs import substitute
from pymc_sgmcmc.model.initial_point import points_near_start
from pymc_sgmcmc.model.minibatch import evaluate, full_arrays
from pymc_sgmcmc.model.row_view import in_batches


def assert_batches_make_up_the_density(step, model):
    """Assert that the mean over batches, of which N is a multiple, is PyMC's log density."""
    size = step.options.batch_size
    batched = in_batches(step._read_model, step.options.batch_dim, size)
    graph = batched.logp(jacobian=False)
    sources = {batch: evaluate(source) for batch, source in full_arrays([graph]).items()}
    rows = {batch: batch.type() for batch in sources}
    inputs = [*model.value_vars, *rows.values()]
    of_batch = pm.compile(inputs, substitute([graph], rows), mode=INTERPRETER,
                          on_unused_input="ignore")  # fmt: skip
    exact = pm.compile(model.value_vars, model.logp(jacobian=False), mode=INTERPRETER)
    [count] = {len(array) for array in sources.values()}
    rng = np.random.default_rng(0)
    parts = rng.permutation(count).reshape(-1, size)
    point = list(points_near_start(model, rng))[-1]
    found = [of_batch(*point, *(x[part] for x in sources.values()))[0] for part in parts]
    expected = exact(*point)
    assert np.isfinite(expected)
    np.testing.assert_allclose(np.mean(found), expected, rtol=1e-9)

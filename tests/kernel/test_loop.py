"""A loop does what its graphs say, and takes only what they read."""

import numpy as np
import pytensor.tensor as pt

from pytensor.graph.traversal import ancestors
from pytensor.scan.op import Scan

from pymc_sgmcmc.backends.compiling import compiled
from pymc_sgmcmc.kernel.loop import looped, unchanged


def test_a_loop_of_states_steps_and_what_is_fixed():
    step, state, rate, unread = (pt.scalar(n, dtype="float64") for n in ("a", "s", "r", "u"))
    steps, start = pt.vector("steps", dtype="float64"), pt.scalar("start", dtype="float64")
    graphs = [rate * state + step, state - step]
    found = looped(graphs, {step: steps}, {state: start}, unchanged([rate, unread]))
    [loop] = {x.owner.op for x in ancestors(found) if x.owner and isinstance(x.owner.op, Scan)}
    assert loop.info.n_non_seqs == 1
    states, others = compiled([steps, start, rate, unread], found, "interpreter")(
        np.array([1.0, 2.0, 3.0]), np.array(5.0), np.array(0.5), np.array(np.nan)
    )
    np.testing.assert_allclose(states, [3.5, 3.75, 4.875])
    np.testing.assert_allclose(others, [4.0, 1.5, 0.75])

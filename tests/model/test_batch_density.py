"""The gradient of a mean over batches, by way of what they share."""

from __future__ import annotations

import numpy as np
import pytensor
import pytensor.tensor as pt

from pymc_sgmcmc.model.batch_density import Adjoints


def test_adjoints_of_batches_are_averaged_before_they_are_pulled_back():
    effect, log_scale = pt.dvector("effect"), pt.dscalar("log_scale")
    group, y = pt.lvector("group"), pt.dvector("y")
    phi, rows = [effect, log_scale], [group, y]
    scale = pt.exp(log_scale)
    centred = effect - effect.mean()
    density = -0.5 * pt.sum(((y - centred[group]) / scale) ** 2) - 3 * pt.log(scale)
    potential = pt.sum(effect**2) - density
    found = Adjoints(potential, phi, rows)
    # Neither the mean effect nor the prior is computed once for each batch
    assert not any(x in rows for s in found.shared for x in pytensor.graph.traversal.ancestors([s]))
    shared = pytensor.function(phi, found.shared, mode="FAST_COMPILE")
    adjoints = pytensor.function(
        [*found.symbols, *rows], found.adjoints, mode="FAST_COMPILE", on_unused_input="ignore"
    )
    given = [a.type() for a in found.adjoints]
    pulled = pytensor.function(
        [*phi, *given], found.pull_back(given), mode="FAST_COMPILE", on_unused_input="ignore"
    )
    gradient = pytensor.function([*phi, *rows], pt.grad(potential, phi), mode="FAST_COMPILE")

    rng = np.random.default_rng(1)
    at = [rng.normal(size=5), 0.3]
    batches = [(rng.integers(0, 5, 3), rng.normal(size=3)) for _ in range(4)]
    s = shared(*at)
    of_batches = zip(*(adjoints(*s, *batch) for batch in batches), strict=True)
    ours = pulled(*at, *(np.mean(parts, axis=0) for parts in of_batches))
    each = zip(*(gradient(*at, *batch) for batch in batches), strict=True)
    for mine, parts in zip(ours, each, strict=True):
        np.testing.assert_allclose(mine, np.mean(parts, axis=0), rtol=1e-12)

"""Functions of a point at some rows of the data, and why a density is not finite there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import chain
from typing import Any

import numpy as np

from pymc.model import Model
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.backends.compiling import compiled
from pymc_sgmcmc.disk.fetch import rows_at, sampled
from pymc_sgmcmc.kernel.noise import FILL
from pymc_sgmcmc.model.data_checks import bad_rows, faults_of_data, impossible
from pymc_sgmcmc.model.posterior import Posterior

# Number of rows on disk that are searched for non-finite ones
_SEARCHED = 2**14


def some_rows(posterior: Posterior) -> list[list[np.ndarray]]:
    """Return B rows of each minibatch, non-finite ones among them."""
    batches: list[list[np.ndarray]] = []
    for whole, batch in zip(posterior.arrays, posterior.minibatches, strict=True):
        arrays = sampled(whole, max(batch.batch_size, _SEARCHED))
        # Rows with a number that is not finite, filled up with the first of the others
        bad = bad_rows(arrays)
        of_bad = np.flatnonzero(bad)[: batch.batch_size]
        good = np.flatnonzero(~bad[: batch.batch_size + len(of_bad)])
        first = np.concatenate([of_bad, good])[: batch.batch_size]
        batches.append([array[first] for array in arrays])
    return batches


def at_rows(
    posterior: Posterior,
    backend: str,
    outputs: list[TensorVariable],
    further: Sequence[TensorVariable] = (),
) -> Callable[..., Any]:
    """Return a function of a point and of one batch of each minibatch.

    A point has the values of φ, scales, others and ``further`` symbols.
    """
    rng = np.random.default_rng(0)
    noise: dict[Any, np.ndarray] = {
        x: FILL[kind](rng, np.empty(x.type.shape, dtype=x.dtype))
        for x, kind in posterior.noise.items()
    }
    data: dict[Any, np.ndarray] = {**posterior.data, **noise}
    inputs = [*posterior.phi, *posterior.scales, *posterior.others, *further]
    # Not numba, which would take long to compile what runs once
    backend = "jax" if backend == "jax" else "interpreter"
    function = compiled([*inputs, *chain(*posterior.rows), *data], outputs, backend)
    return lambda point, batches: function(*point, *chain(*batches), *data.values())


def why_not_finite(
    model: Model, posterior: Posterior, backend: str, point: Sequence[np.ndarray]
) -> str:
    """Return a message that names non-finite terms at a start."""
    graphs = [*posterior.terms.values(), *posterior.gradient]
    found = at_rows(posterior, backend, graphs)(point, some_rows(posterior))
    values, gradients = found[: len(posterior.terms)], found[len(posterior.terms) :]
    terms = {
        name: float(value)
        for name, value in zip(posterior.terms, values, strict=True)
        if not np.isfinite(value)
    }
    bad = [f"the log density of '{name}' is {value}" for name, value in terms.items()]
    bad += [
        f"the gradient for '{c.name}' is not finite"
        for c, g in zip(posterior.coordinates, gradients, strict=True)
        if not np.all(np.isfinite(g))
    ]
    what = "; ".join(bad) or "the log density of some rows is not finite"
    names = terms or posterior.terms
    # Where a prior has no density either, the start is at fault
    of_data = {rv.name for rv in model.observed_RVs}.issuperset(terms)
    cures = [faults_of_data(model, names)]
    if "NaN" not in cures[0]:
        # A bound can be infinite without fault
        cures += [
            (of_data and impossible_rows(model, posterior, backend, names, point))
            or "Pass initvals= to pm.sample with values that the priors and the likelihood allow."
        ]
    return " ".join([f"The chain cannot start: {what}.", *filter(None, cures)])


def impossible_rows(
    model: Model,
    posterior: Posterior,
    backend: str,
    names: Collection[str],
    point: Sequence[np.ndarray],
) -> str:
    """Name the rows of observed variables without a log density, or return an empty string."""
    sentences = []
    for rv in [rv for rv in model.observed_RVs if rv.name in names]:
        log_density, of = posterior.entries[rv.name]
        function, n, size = at_rows(posterior, backend, [log_density]), 1, 1
        if of is not None:
            n, size = len(posterior.arrays[of][0]), posterior.minibatches[of].batch_size
        bad = []
        for first in range(0, n, size):
            batches = [
                [rows_at(array, first, batch.batch_size) for array in arrays]
                for batch, arrays in zip(posterior.minibatches, posterior.arrays, strict=True)
            ]
            values = np.atleast_1d(function(point, batches)[0])
            entries = np.argwhere(~np.isfinite(values))
            entries[:, 0] += min(first, n - size)
            bad.append(entries)
        if any(map(len, bad)):
            count = len(values) if of is None else n
            sentences.append(impossible(model, rv, np.concatenate(bad), count))
    return " ".join(sentences)

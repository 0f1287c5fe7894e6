"""What is logged before sampling: memory, compilation, deterministics, log likelihoods."""

from __future__ import annotations

import logging

from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np

from pymc.model import Model
from pytensor import config
from pytensor.compile.mode import get_default_mode
from pytensor.graph.traversal import apply_ancestors
from pytensor.link.numba.linker import NumbaLinker
from pytensor.tensor.blas import BatchedDot
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.math import Dot
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.model.minibatch import evaluate, find_minibatches, minibatch_terms
from pymc_sgmcmc.model.row_view import RowView

_log = logging.getLogger("pymc.sgmcmc")

# Draws whose memory is estimated, and the bytes of them that are worth a warning
_DRAWS, _LARGE = 1000, 2**30

# PyMC's arrays with the tuning draws, those of the result, and what is read meanwhile
_COPIES = 2.5


def tell_memory(model: Model, values: Sequence[TensorVariable]) -> None:
    """Say in the log what a thousand draws of a chain take, where that is more than a GiB."""
    size = _DRAWS * sum(_size(model, value) * np.dtype(value.dtype).itemsize for value in values)
    if size >= _LARGE:
        _log.warning(
            "%s draws of %s take %.3g GB of memory for each chain, and sampling about %g times as "
            "much, deterministics apart. Pass fewer draws= and tune= with a larger thin=, or "
            "var_names= to keep only some variables.",
            f"{_DRAWS:,}",
            ", ".join(model.values_to_rvs[value].name for value in values),
            size / 1e9,
            _COPIES,
        )


def _size(model: Model, value: TensorVariable) -> int:
    """Return the numbers in a variable, 0 where only compilation would tell."""
    rv = model.values_to_rvs[value]
    shape = list(rv.type.shape)
    for k, dim in enumerate(model.named_vars_to_dims.get(rv.name, ())):
        length = model.dim_lengths.get(dim)
        if shape[k] is None and length is not None:
            shape[k] = int(evaluate(length))
    return 0 if None in shape else int(np.prod(shape, dtype=np.int64))


def left_out(model: Model, dim: str | None) -> frozenset[str]:
    """Return the names of deterministics that depend on all rows of a dim, and log them.

    A draw would take all rows for them, and an update takes a few.
    """
    if dim is None:
        return frozenset()
    view = RowView(model, dim)
    names = [str(d.name) for d in model.deterministics if view.depends_on_rows(d)]
    if names:
        _log.info(
            "The draws leave out %s, computed from all rows: pm.compute_deterministics("
            "dt.posterior) computes it afterwards, and var_names= keeps it in the draws.",
            ", ".join(f"'{name}'" for name in names),
        )
    return frozenset(names)


def tell_compilation(model: Model, left_out: Collection[str]) -> None:
    """Say in the log which deterministics hold a matrix product that numba has yet to compile.

    PyMC computes deterministics by a function of its own, whatever the step's backend is. Of all
    that numba compiles only a matrix product takes long, and only once: PyTensor keeps it on disk.
    """
    if not isinstance(get_default_mode().linker, NumbaLinker) or _is_kept():
        return
    names = [str(x.name) for x in model.deterministics if x.name not in left_out and _multiplies(x)]
    if names:
        _log.info(
            "PyMC compiles a matrix product for %s with numba before the first draw. That can take "
            "half a minute, on this machine only once. Pass var_names= to pm.sample to leave "
            "deterministics out.",
            ", ".join(names),
        )


def _multiplies(variable: TensorVariable) -> bool:
    ops = [node.op for node in apply_ancestors([variable])]
    cores = [op.core_op if isinstance(op, Blockwise) else op for op in ops]
    return any(isinstance(op, Dot | BatchedDot) for op in cores)


def _is_kept() -> bool:
    return any(Path(config.base_compiledir, "numba").glob("*.dot-*"))


def tell_others(model: Model, others: Collection[str], temperatures: Collection[float]) -> None:
    """Say in the log where the steps of a run sample no posterior together.

    PyMC's own would sample ``others`` by densities of batches, or not all have one temperature.
    """
    if len(temperatures) > 1:
        _log.warning(
            "The step methods of this run have the temperatures %s (PyMC's own have 1). Together "
            "they sample no power of the posterior: give all the same temperature, or let one of "
            "them sample all variables.",
            " and ".join(f"{x:g}" for x in sorted(temperatures)),
        )
    if others and minibatch_terms(model):
        _log.warning(
            "PyMC's own step methods sample %s in a model with a pm.Minibatch. They compare "
            "densities of the whole model, each of another batch, so their draws are wrong. Sample "
            "these variables by a step method of this package, or write the model without "
            "pm.Minibatch.",
            ", ".join(f"'{name}'" for name in others),
        )


def tell_log_likelihood(model: Model) -> None:
    """Say in the log that PyMC's is of one batch, if the model draws them by ``pm.Minibatch``."""
    values = [model.rvs_to_values[rv] for rv in model.observed_RVs]
    if find_minibatches([*model.observed_RVs, *values]):
        _log.warning(
            "PyMC's log_likelihood of a model with pm.Minibatch is that of one batch. For all "
            "rows, pass model=sg.full_data(model) to pm.compute_log_likelihood."
        )

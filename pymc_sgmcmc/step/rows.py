"""Which rows an update of a model takes, checked before anything is compiled."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pymc.model import Model

from pymc_sgmcmc.kernel.options import Options
from pymc_sgmcmc.kernel.tables import SHARED_ORDER, RowMemory, is_large
from pymc_sgmcmc.model.choice_of_batches import chosen_batches
from pymc_sgmcmc.model.data_checks import (
    check_coords,
    check_indices,
    check_observed_shapes,
    check_potentials,
)
from pymc_sgmcmc.model.independent_rows import require_independent_rows
from pymc_sgmcmc.model.minibatch_checks import check_minibatches
from pymc_sgmcmc.model.row_view import in_batches
from pymc_sgmcmc.step.arguments import check_batches
from pymc_sgmcmc.step.notices import left_out


@dataclass(frozen=True)
class Rows:
    """The rows of a model, and of its batches."""

    model: Model  # with the dim of the rows
    dim: str | None
    size: int | None  # of a batch along the dim
    batch_size: int  # rows of the largest batch, 0 where updates take all rows
    left_out: frozenset[str]  # deterministics of all rows
    order: int | None  # seed of the order that all chains share, where rows in memory are many


def sampled_rows(model: Model, asked: Any, options: Options) -> tuple[Rows, RowMemory | None]:
    """Check the minibatches; return the rows, and memory for those that forked processes share.

    ``asked`` are the user's ``batch_size`` and ``batch_dim``.
    """
    check_coords(model)
    check_potentials(model)
    check_observed_shapes(model)
    check_indices(model)
    chosen = chosen_batches(model, *asked)
    minibatches = check_minibatches(in_batches(chosen.model, chosen.dim, chosen.size))
    if chosen.dim is None:
        require_independent_rows(chosen.model)
    check_batches(options.batches, minibatches, options.batch)
    memory, is_shared = None, is_large(minibatches)
    if is_shared:
        with suppress(OSError):  # then each process has a copy
            memory = RowMemory(minibatches)
    rows = Rows(
        model=chosen.model,
        dim=chosen.dim,
        size=chosen.size,
        batch_size=max((x.batch_size for x in minibatches), default=0),
        left_out=left_out(chosen.model, chosen.dim),
        order=SHARED_ORDER if is_shared else None,
    )
    return rows, memory

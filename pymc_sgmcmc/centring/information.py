"""What tuning learns of a variable, as named rows of one array.

A chain keeps one array for each variable, of which :func:`read` returns the rows by their names.
Each is shaped as φ. The first is λ, the next two are J and g, if there are any.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Share(NamedTuple):
    """Of variables that are either centred or not."""

    share: Any  # λ


class Information(NamedTuple):
    """Of independent elements. An element with J = 0 is centred for λ = 1."""

    share: Any  # λ, the data's share of what is known of an element
    precision: Any  # J
    score: Any  # g


class WalkInformation(NamedTuple):
    """Of the values of a walk."""

    share: Any
    precision: Any  # J of steady states that have the same R
    score: Any
    of_values: Any  # J of each value


class BlockInformation(NamedTuple):
    """Of one variable of a block."""

    share: Any
    precision: Any  # the diagonal of J
    score: Any
    matrix: Any  # these elements' columns of J


class FieldInformation(NamedTuple):
    """Of areas, with a basis B that makes Q and J diagonal at one place of the hyperparameters."""

    share: Any
    precision: Any  # J
    score: Any  # Bᵀg
    of_data: Any  # the diagonal of BᵀJB
    of_prior: Any  # the diagonal of BᵀQB
    of_neighbours: Any  # the diagonal of BᵀWB
    known: Any  # mean J, without other effects, that belongs to ``of_data``
    unit: Any  # c, α, s and τ at the place of the basis, each repeated
    alpha: Any
    scale: Any
    beside: Any
    log_det: Any  # log|det B| / n, repeated
    basis: Any  # B


_MATRICES = (BlockInformation, FieldInformation)


def read(kind: Any, array: Any) -> Any:
    """Return an array or tensor as this kind of information; a matrix takes all further rows."""
    last = len(kind._fields) - 1
    rows = [array[i] for i in range(last)]
    return kind(*rows, array[last:] if kind in _MATRICES else array[last])

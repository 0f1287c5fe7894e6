"""Substitution and differentiation of graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytensor

from pytensor.graph.replace import graph_replace
from pytensor.tensor.variable import TensorVariable

__all__ = ["gradient_of", "substitute"]


def substitute(graphs: Sequence[Any], replacements: Mapping[Any, Any]) -> list[TensorVariable]:
    """Return ``graphs`` with variables replaced, those that do not occur in them ignored."""
    replaced: list[Any] = graph_replace(list(graphs), dict(replacements), strict=False)
    return replaced


def gradient_of(
    density: TensorVariable, variables: Sequence[TensorVariable]
) -> list[TensorVariable]:
    """Return the gradient, zero for variables on which the density does not depend."""
    gradient: list[TensorVariable] = pytensor.grad(  # type: ignore[assignment]
        density, list(variables), disconnected_inputs="ignore"
    )
    return gradient

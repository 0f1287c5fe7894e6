"""The statistics of a draw: names and types."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from pymc.model import Model
from pymc.stats.convergence import SamplerWarning

from pymc_sgmcmc.chain.by_variable import CENTRING, NOISE, TEMPERATURE, statistic_of
from pymc_sgmcmc.model.affine_use import depends_on

__all__ = ["STATISTICS", "nothing_measured", "of_variables"]

Declared = dict[str, tuple[Any, Any]]

STATISTICS: Declared = {
    "step_size": (np.float64, []),
    "weight": (np.float64, []),
    "thin": (np.int64, []),
    "batches": (np.int64, []),
    "batch_size": (np.int64, []),
    "batch_logp": (np.float64, []),
    "grad_norm": (np.float64, []),
    "config_temperature": (np.float64, []),
    "noise_ratio": (np.float64, []),
    "diverging": (bool, []),
    "rejected_updates": (np.int64, []),
    "tamed_updates": (np.int64, []),
    "warning": (SamplerWarning, None),  # the type that NUTS declares: PyMC wants the same
}

_UNKNOWN: dict[Any, Any] = {np.float64: np.nan, np.int64: 0, bool: False, SamplerWarning: None}


def nothing_measured(declared: Declared) -> dict[str, Any]:
    """Return the statistics of a draw without updates."""
    return {name: _UNKNOWN[dtype] for name, (dtype, _) in declared.items()}


def of_variables(
    model: Model, names: Sequence[str], *, temperature: bool, noise: bool, centring: bool
) -> list[str]:
    """Return the names of each variable's statistics.

    Weights are those of variables whose law depends on another one that is sampled.
    """
    sampled = {model[name] for name in names}

    def below(name: str) -> bool:
        return depends_on(model[name].owner.inputs, sampled)

    kinds: list[tuple[str, Iterable[str]]] = [
        (TEMPERATURE, names if temperature else ()),
        (NOISE, names if noise else ()),
        (CENTRING, filter(below, names) if centring else ()),
    ]
    return [statistic_of(kind, name) for kind, of in kinds for name in of]

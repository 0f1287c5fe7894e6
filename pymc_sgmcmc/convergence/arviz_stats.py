"""ArviZ's statistics, with the usual ones computed of many parameters at once.

The module is a value of ArviZ's ``rcParams["stats.module"]``. Of ``ess`` the methods "bulk" and
"mean", of ``rhat`` "rank", and of ``mcse`` "mean" and "sd" are ArviZ's to rounding, and take less
time (``tests/benchmarks/checks.py``); all else is ArviZ's own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from arviz_stats.base.array import BaseArray, process_ary_axes, process_chain_none
from arviz_stats.base.dataarray import BaseDataArray

from pymc_sgmcmc.convergence.effective import effective_draws
from pymc_sgmcmc.convergence.rhat import rank_rhat
from pymc_sgmcmc.convergence.standard_errors import error_of_mean, error_of_sd

__all__ = ["array_stats", "dataarray_stats", "eti", "rhat"]

_Statistic = Callable[[np.ndarray], np.ndarray]
_ESS: dict[str, _Statistic] = {
    "bulk": effective_draws,
    "mean": partial(effective_draws, scored=False),
}
_MCSE: dict[str, _Statistic] = {"mean": error_of_mean, "sd": error_of_sd}


class _Together(BaseArray):
    """ArviZ's functions of arrays."""

    def ess(
        self,
        ary: Any,
        chain_axis: Any = -2,
        draw_axis: Any = -1,
        method: str = "bulk",
        relative: bool = False,
        prob: Any = None,
    ) -> Any:
        statistic = None if relative else _ESS.get(method.lower())
        if statistic is None:
            return BaseArray.ess(self, ary, chain_axis, draw_axis, method, relative, prob)
        return _of_each(statistic, ary, chain_axis, draw_axis)

    def mcse(
        self,
        ary: Any,
        chain_axis: Any = -2,
        draw_axis: Any = -1,
        method: str = "mean",
        prob: Any = None,
        circular: bool = False,
    ) -> Any:
        statistic = None if circular else _MCSE.get(method.lower())
        if statistic is None:
            return BaseArray.mcse(self, ary, chain_axis, draw_axis, method, prob, circular)
        return _of_each(statistic, ary, chain_axis, draw_axis)

    def rhat(
        self, ary: Any, chain_axis: Any = -2, draw_axis: Any = -1, method: str = "rank"
    ) -> Any:
        if method.lower() != "rank":
            return BaseArray.rhat(self, ary, chain_axis, draw_axis, method)
        return _of_each(rank_rhat, ary, chain_axis, draw_axis)


def _of_each(statistic: _Statistic, ary: Any, chain_axis: Any, draw_axis: Any) -> np.ndarray:
    ary, chain_axis, draw_axis = process_chain_none(ary, chain_axis, draw_axis)
    ary, _ = process_ary_axes(ary, [chain_axis, draw_axis])
    draws = ary.reshape(-1, *ary.shape[-2:])
    return statistic(draws).reshape(ary.shape[:-2])


array_stats = _Together()
dataarray_stats = BaseDataArray(array_stats)
# What ArviZ looks for in a module of statistics
eti, rhat = dataarray_stats.eti, dataarray_stats.rhat

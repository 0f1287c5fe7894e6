"""What numba needs to know of this package's operations. Imports its linker when first asked."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from pymc_sgmcmc.backends.once import Once
from pymc_sgmcmc.centring.recurrence import Recurrence


@cache
def prepare() -> None:
    """Let PyTensor's linker compile recurrences as loops, and barriers as nothing."""
    from pytensor.link.numba.dispatch.basic import numba_njit, register_funcify_default_op_cache_key

    @register_funcify_default_op_cache_key(Recurrence)
    def funcified(op: Recurrence, node: Any = None, **kwargs: Any) -> Callable[..., Any]:
        ahead = op.ahead

        @numba_njit
        def recurrence(x: Any, kept: Any) -> Any:
            length = x.shape[-1]
            y = np.ascontiguousarray(x).copy()
            series = y.reshape((-1, length))
            factors = np.ascontiguousarray(kept).reshape((-1, length))
            for i in range(len(series)):
                if ahead:
                    for t in range(1, length):
                        series[i, t] += factors[i, t] * series[i, t - 1]
                else:
                    for t in range(length - 2, -1, -1):
                        series[i, t] += factors[i, t + 1] * series[i, t + 1]
            return y

        return recurrence

    @register_funcify_default_op_cache_key(Once)
    def passed(op: Once, **kwargs: Any) -> Callable[..., Any]:
        @numba_njit
        def once(x: Any) -> Any:
            return x

        return once

"""What PyMC will compile before the first draw, told where it takes long."""

from __future__ import annotations

import logging

from collections.abc import Collection
from pathlib import Path

from pymc.model import Model
from pytensor import config
from pytensor.compile.mode import get_default_mode
from pytensor.graph.traversal import apply_ancestors
from pytensor.link.numba.linker import NumbaLinker
from pytensor.tensor.blas import BatchedDot
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.math import Dot
from pytensor.tensor.variable import TensorVariable

__all__ = ["tell_compilation"]

_log = logging.getLogger("pymc.sgmcmc")


def tell_compilation(model: Model, left_out: Collection[str]) -> None:
    """Say in the log which deterministics hold a matrix product that numba has yet to compile.

    PyMC computes deterministics by a function of its own, whatever the step's backend is. Of all
    that numba compiles only a matrix product takes long, and only once: PyTensor keeps it on disk.
    """
    if not isinstance(get_default_mode().linker, NumbaLinker) or _is_kept():
        return
    kept = (x for x in model.deterministics if x.name not in left_out)
    names = [str(x.name) for x in kept if _has_product(x)]
    if names:
        _log.info(
            "PyMC compiles a matrix product for %s with numba before the first draw. That can take "
            "half a minute, on this machine only once. Pass var_names= to pm.sample to leave "
            "deterministics out.",
            ", ".join(names),
        )


def _has_product(variable: TensorVariable) -> bool:
    ops = [node.op for node in apply_ancestors([variable])]
    return any(
        isinstance(op.core_op if isinstance(op, Blockwise) else op, Dot | BatchedDot) for op in ops
    )


def _is_kept() -> bool:
    return any(Path(config.base_compiledir, "numba").glob("*.dot-*"))

"""Whether a density has kinks, at which its gradient jumps."""

from __future__ import annotations

from pymc.distributions.continuous import AsymmetricLaplaceRV
from pymc.model import Model
from pymc.variational.minibatch_rv import MinibatchRandomVariable
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.scalar import Abs
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.random.basic import LaplaceRV

__all__ = ["has_kinks"]


def has_kinks(model: Model) -> bool:
    """Return whether some variable of a model has a Laplace distribution, or an asymmetric one.

    A potential with an absolute value in it counts as one.
    """
    for rv in model.basic_RVs:
        inner = rv.owner.inputs[0] if isinstance(rv.owner.op, MinibatchRandomVariable) else rv
        if inner.owner and isinstance(inner.owner.op, LaplaceRV | AsymmetricLaplaceRV):
            return True
    return any(_is_absolute(x) for x in ancestors(model.potentials, model.basic_RVs))


def _is_absolute(x: Variable) -> bool:
    op = None if x.owner is None else x.owner.op
    return isinstance(op, Elemwise) and isinstance(op.scalar_op, Abs)

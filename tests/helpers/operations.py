"""Operations that PyTensor alone can run."""

import numpy as np

from pytensor.graph.basic import Apply
from pytensor.graph.op import Op


class Cube(Op):
    """x³, with a gradient, for PyTensor's interpreter only."""

    def make_node(self, x):
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, output_storage):
        output_storage[0][0] = np.asarray(inputs[0] ** 3)

    def pullback(self, inputs, outputs, cotangents):
        return [3 * inputs[0] ** 2 * cotangents[0]]


class NoGradient(Cube):
    """x³, without a gradient."""

    def pullback(self, inputs, outputs, cotangents):
        raise NotImplementedError("pullback not implemented for NoGradient")

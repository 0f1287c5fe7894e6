"""A sampler that writes down the gradients of its updates."""

from dataclasses import replace
from functools import cached_property

import numpy as np
import pytensor.tensor as pt

import pymc_sgmcmc as sg


class Recorder(sg.SGMCMCStep):
    """Stay where you are and write down the gradient of every update of a draw."""

    @cached_property
    def point(self):
        return self.model.initial_point()

    def initial_extra(self, position, rng):
        return {"trace": [np.zeros((self.options.thin, *x.shape)) for x in position]}

    def update(self, position, extra, gradient, step_size, noise):
        def shifted(trace, g):
            return pt.concatenate([trace[1:], g[None]])

        return position, {"trace": extra["trace"].map(shifted, gradient(position))}

    def record(self, psi):
        """Return the gradients of the next draw's updates at ψ, shape (updates, dimension)."""
        # Without the values of the last draw: another point would count as moved by other steps
        self.chain = replace(self.chain, psi=psi, values=[], extra=self.initial_extra(psi, None))
        self.step(self.point)
        return np.concatenate([t.reshape(len(t), -1) for t in self.chain.extra["trace"]], axis=1)

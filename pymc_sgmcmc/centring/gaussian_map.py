r"""Coordinates in which a variable is standard normal, given its hyperparameters and the data.

Let :math:`x = l + u z`, where z has the prior precision Q, and let the likelihood of x be
approximated by a normal one with information J and score g at x = 0. Given the hyperparameters l, u
and those of Q,

.. math:: P = Q + u J u = R^\top R, \qquad m = P^{-1} u (g - J l), \qquad \varphi = R (z - m).

Where J and g are right φ is N(0, 1) whatever the hyperparameters are: neither a funnel nor a ridge
is left [1]_. Without information φ is z, the non-centred coordinate, and with much of it, but for a
shift and a factor, the centred one, x. The variable of the model is :math:`\theta = f(x)` with a
link f, or z itself.

A structure says what Q and R look like: ``elements.py`` (diagonal), ``walks.py`` (bidiagonal),
``fields.py`` (a joint basis), ``coefficients.py`` (Cholesky's factor) and ``vectors.py`` (J is
nothing or everything).

.. [1] Christensen, Roberts, Sköld (2006). Robust Markov chain Monte Carlo methods for spatial
   generalized linear mixed models. Journal of Computational and Graphical Statistics 15(1), 1-17.
"""

from __future__ import annotations

import copy

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, ClassVar

import numpy as np
import pytensor.tensor as pt

from pymc.logprob.transforms import Transform
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.centring.information import Information, read
from pymc_sgmcmc.centring.links import IDENTITY, Link
from pymc_sgmcmc.floats import as_float

# Information, beside the prior's precision, of data that determine a variable at any scale
LEADS = 1e4

# A smaller share of the data cannot be distinguished from the rounding of curvatures
LEAST_SHARE = 1e-3


class Probe(Enum):
    """The moves along which U is differentiated to learn a variable's information."""

    SIGNS = auto()  # random signs of all elements
    COMMON = auto()  # all elements alike
    UNIT = auto()  # each element of a block of variables


@dataclass(frozen=True)
class Affine:
    """An invertible affine map of tensors, and log|det| of its slope."""

    to: Callable[[Any], Any]
    back: Callable[[Any], Any]
    log_slope: Any


@dataclass(frozen=True)
class Middle:
    """φ, location and scale of a variable in the middle of the bulk."""

    phi: np.ndarray
    location: np.ndarray
    spread: np.ndarray


class GaussianMap(Transform):
    """φ = R (z − m), with the information that tuning learns as rows of one array, λ first.

    λ is the data's share of the information: 0 in non-centred and 1 in centred coordinates.
    """

    kind: ClassVar[Any] = Information  # names of the rows of the array
    probe: ClassVar[Probe] = Probe.SIGNS
    # Whether learning improves from the bulk in the map's own coordinates
    refines: ClassVar[bool] = True
    # Whether log|det| is of vectors along the last dimension, not of elements
    joint: ClassVar[bool] = True
    # Whether a batch's noise is common to many elements or grows along each, so that a thermostat
    # of each does not absorb all of it; whether it grows along each in any coordinates
    shares_noise: bool = False
    noise_grows: bool = False
    as_written: float = 1.0  # the λ of the coordinates before tuning
    of_residual: bool = False  # whether the variable is z, not f(x)
    link: Link = IDENTITY
    array: Any = None

    @property
    def unbounded(self) -> bool:
        """Whether θ is real."""
        return not self.link.bounded

    @property
    def information(self) -> Any:
        """The information, with named rows."""
        return read(self.kind, self.array)

    @property
    def rows(self) -> int:
        """The number of rows of the array."""
        return len(self.kind._fields)

    def with_information(self, array: Any) -> GaussianMap:
        """Return the same map with other information."""
        other = copy.copy(self)
        other.array = array
        return other

    def uniform(self, share: float, shape: tuple[int, ...]) -> np.ndarray:
        """Return the information of φ of this shape with one λ, and nothing else known."""
        array = np.zeros((self.rows, *shape))
        array[0] = share
        return array

    # ------------------------------------------------------------------ what a structure defines

    def parents(self, *inputs: Variable) -> list[Any]:
        """Return the graphs that make up the map, of the inputs of the variable."""
        raise NotImplementedError

    def depends_on(self, *inputs: Variable) -> list[Any]:
        """Return all graphs that the map depends on."""
        return self.parents(*inputs)

    def spread(self, *inputs: Variable) -> Any:
        """Return u, or a similar width that the hierarchy gives to x."""
        raise NotImplementedError

    def location(self, *inputs: Variable) -> Any:
        """Return l, where learning uses it."""
        return pt.zeros_like(self.spread(*inputs))

    def prior(self, *inputs: Variable) -> Affine:
        """Return x = l + u z, as a map of z."""
        raise NotImplementedError

    def given_data(self, *inputs: Variable) -> Affine:
        """Return z = m + R⁻¹ φ, as a map of φ."""
        raise NotImplementedError

    @property
    def is_centred(self) -> Any:
        """Mask of elements with φ = x; None where no element can be."""
        return None

    # ------------------------------------------------------------------ the map

    def backward(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Map coordinates to the variable."""
        prior, data = self.prior(*inputs), self.given_data(*inputs)
        if self.of_residual:
            return self._where_centred(prior.back, data.to, value)
        return self.link.to(self._x(value, prior, data), self.spread(*inputs))

    def forward(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Map the variable to its coordinates."""
        prior, data = self.prior(*inputs), self.given_data(*inputs)
        if self.of_residual:
            return self._where_centred(prior.to, data.back, value)
        x = self.link.back(value, self.spread(*inputs))
        return self._where_centred(lambda x: x, lambda x: data.back(prior.back(x)), x)

    def log_jac_det(self, value: Any, *inputs: Variable) -> TensorVariable:
        """Return log|det| of the slope of the variable along φ."""
        prior, data = self.prior(*inputs), self.given_data(*inputs)
        slope, of_centred = data.log_slope, -prior.log_slope
        if not self.of_residual:
            slope = prior.log_slope + slope
            of_centred = pt.zeros_like(slope)
        mask = self.is_centred
        if mask is not None:
            slope = pt.switch(mask[..., 0] if self.joint else mask, of_centred, slope)
        return self.link.log_det(slope, self._x(value, prior, data), self.spread(*inputs))

    def _x(self, phi: Any, prior: Affine, data: Affine) -> Any:
        return self._where_centred(lambda x: x, lambda x: prior.to(data.to(x)), phi)

    def _where_centred(
        self, centred: Callable[[Any], Any], other: Callable[[Any], Any], value: Any
    ) -> Any:
        mask = self.is_centred
        return other(value) if mask is None else pt.switch(mask, centred(value), other(value))

    # ------------------------------------------------------------------ what tuning learns

    def from_curvature(
        self, curvature: np.ndarray, spreads: np.ndarray, middle: Middle
    ) -> np.ndarray:
        """Return the information from the mean curvature of U along each φ over the bulk.

        No element is centred. ``spreads`` are scales at positions of the bulk, along dimension 0.
        """
        raise NotImplementedError

    def shift(self, middle: Middle) -> np.ndarray:
        """Return by how much φ moves where all elements of x move by 1."""
        raise NotImplementedError

    def from_shift(self, gradient: np.ndarray, change: np.ndarray, middle: Middle) -> np.ndarray:
        """Return the information from ∇U along φ and its change where all x move by 1."""
        raise NotImplementedError


def logarithm(scale: Any) -> Any:
    """Return log σ, finite also where σ was rounded to 0."""
    scale = as_float(scale)
    least = np.finfo(scale.dtype).tiny
    return pt.log(pt.maximum(scale, np.array(least, dtype=scale.dtype)))

r"""Independent elements, standardised by prior and data together: all matrices are diagonal.

.. math::
   x \sim N\Bigl(\frac{\mu + \sigma^2 g}{1 + J \sigma^2}, \frac{\sigma^2}{1 + J \sigma^2}\Bigr)
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt

from pytensor.graph.basic import Variable

from pymc_sgmcmc.centring.gaussian_map import LEAST_SHARE, Affine, GaussianMap, Middle, logarithm
from pymc_sgmcmc.centring.links import IDENTITY, LOGIT, ROOT, Law, Link, location_and_scale


class Elements(GaussianMap):
    """Map to a variable θ = f(x) whose elements are independent given location and scale of x.

    ``law`` maps the variable's inputs to these. ``beside`` is added to the variable by the model:
    the data determine the sum of an area's effect and a normal one, and J and g are of that sum.
    """

    joint = False

    def __init__(
        self, law: Law = location_and_scale, link: Link = IDENTITY, beside: Any = None
    ) -> None:
        self.law, self.link, self.beside = law, link, beside
        self.shares_noise = self.noise_grows = link in (LOGIT, ROOT)

    @property
    def is_centred(self) -> Any:
        """Mask of centred elements, φ = x."""
        known = self.information
        return pt.and_(pt.eq(known.precision, 0), known.share > 0)

    def parents(self, *inputs: Variable) -> list[Any]:
        """Return μ and σ."""
        return self.law(*inputs)

    def depends_on(self, *inputs: Variable) -> list[Any]:
        """Return μ, σ and the added term."""
        return [*self.parents(*inputs), *([] if self.beside is None else [self.beside])]

    def spread(self, *inputs: Variable) -> Any:
        """Return σ."""
        return self.parents(*inputs)[1]

    def location(self, *inputs: Variable) -> Any:
        """Return μ, or the mean of the sum."""
        location = self.parents(*inputs)[0]
        return location if self.beside is None else location + self.beside

    def prior(self, *inputs: Variable) -> Affine:
        """Return x = μ + σz."""
        location, scale = self.parents(*inputs)
        # A residual's σ may be 0, whose logarithm is infinite, where the element is not centred
        divisor = pt.switch(self.is_centred, scale, 1.0) if self.of_residual else scale
        return Affine(
            lambda z: location + scale * z, lambda x: (x - location) / divisor, logarithm(divisor)
        )

    def given_data(self, *inputs: Variable) -> Affine:
        """Return z, given the data."""
        mean, precision = self._moments(self.location(*inputs), self.spread(*inputs))
        sd = precision**-0.5
        return Affine(lambda phi: mean + sd * phi, lambda z: (z - mean) / sd, pt.log(sd))

    def _moments(self, location: Any, scale: Any) -> tuple[Any, Any]:
        """Return mean and precision of z, given the data."""
        known = self.information
        precision = 1 + known.precision * scale**2
        return scale * (known.score - known.precision * location) / precision, precision

    def from_curvature(
        self, curvature: np.ndarray, spreads: np.ndarray, middle: Middle
    ) -> np.ndarray:
        """Return λ, J and g of elements of which none is centred."""
        scale, location = middle.spread, middle.location
        relative = 1 / (1 + self.information.precision * spreads**2)
        # The curvature along φ is (1 + Jσ²) / (1 + J'σ²) in coordinates of another J'
        excess = (curvature - relative.mean(axis=0)) / (spreads**2 * relative).mean(axis=0)
        is_known = excess * (spreads**2).mean(axis=0) > LEAST_SHARE
        information = np.where(is_known, excess, 0)
        mean, precision = self._moments(location, scale)
        z = mean + middle.phi / np.sqrt(precision)
        score = np.where(is_known, information * (location + scale * z) + z / scale, 0)
        ratio = information * np.median(spreads, axis=0) ** 2
        return np.stack([ratio / (1 + ratio), information, score])


class Residuals(Elements):
    """Map to a standard variable z that the model uses only as x = μ + σz.

    μ and σ are graphs of the model's other variables.
    """

    as_written = 0.0
    of_residual = True

    def __init__(self, location: Any, scale: Any) -> None:
        super().__init__(lambda *_: [location, scale])

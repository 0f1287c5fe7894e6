"""What the blocks of a position stand for: names, kinds, bounds, and the map θ = f(φ)."""

from __future__ import annotations

from collections.abc import Callable

import pytensor.tensor as pt

from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.kernel.blocks import Blocks
from pymc_sgmcmc.kernel.whitening import Whitening
from pymc_sgmcmc.model.graphs import gradient_of, substitute
from pymc_sgmcmc.model.posterior import Posterior


class Variables:
    """The model's variables, one for each block of the position, as an update sees them.

    ``names`` and ``kinds`` are always there. All else is symbolic and only for samplers whose
    policy has ``whitened=False``: whitening would mix the variables.

    Parameters
    ----------
    posterior : Posterior
        The density.
    whitening : Whitening
        The map from ψ to φ.

    Attributes
    ----------
    names : tuple of str
        Names in the model.
    kinds : tuple of str
        Support of each: "real", "half-line", "interval", "simplex", "ordered", "circle",
        "cholesky", "zero-sum" or "other".
    """

    def __init__(self, posterior: Posterior, whitening: Whitening) -> None:
        self.names = tuple(c.name for c in posterior.coordinates)
        self.kinds = tuple(c.kind for c in posterior.coordinates)
        self._posterior = posterior
        self._unwhitened = whitening.kind == Whitening.kind

    def theta(self, position: Blocks) -> Blocks:
        """Return θ = f(φ) of each variable."""
        return self._at(self._posterior.parameters, position)

    def lower(self, position: Blocks) -> Blocks:
        """Return the lower bounds of θ, −∞ where there are none, shaped as θ.

        Bounds may depend on other variables.
        """
        return self._at([low for low, _ in self._posterior.bounds], position)

    def upper(self, position: Blocks) -> Blocks:
        """Return the upper bounds of θ, +∞ where there are none, shaped as θ."""
        return self._at([high for _, high in self._posterior.bounds], position)

    def slope(self, position: Blocks) -> Blocks:
        """Return f′(φ), of maps that act on each element alone.

        Raises
        ------
        NotImplementedError
            If a variable's map mixes its elements, as that of a simplex.
        """
        return self._at(self._of_elements(lambda phi, log_slope: pt.exp(log_slope)), position)

    def second(self, position: Blocks) -> Blocks:
        """Return f″(φ), of maps that act on each element alone."""

        def second(phi: TensorVariable, log_slope: TensorVariable) -> TensorVariable:
            [change] = gradient_of(pt.sum(log_slope), [phi])
            return pt.exp(log_slope) * change

        return self._at(self._of_elements(second), position)

    def _of_elements(
        self, function: Callable[[TensorVariable, TensorVariable], TensorVariable]
    ) -> list[TensorVariable]:
        pairs = list(zip(self._posterior.coordinates, self._posterior.log_slopes, strict=True))
        for c, log_slope in pairs:
            if log_slope is not None and log_slope.ndim != c.phi.ndim:
                raise NotImplementedError(
                    f"The map of '{c.name}' ({c.kind}) mixes its elements, so that it has no slope "
                    "of its own in each. This sampler needs one: sample that variable by another."
                )
        return [
            function(c.phi, pt.zeros_like(c.phi) if log_slope is None else log_slope)
            for c, log_slope in pairs
        ]

    def _at(self, graphs: list[TensorVariable], position: Blocks) -> Blocks:
        if not self._unwhitened:
            raise NotImplementedError(
                "Bounds and maps of variables are for samplers whose policy has whitened=False."
            )
        values = substitute(graphs, dict(zip(self._posterior.phi, position, strict=True)))
        return Blocks(
            pt.broadcast_to(x, phi.type.shape).astype(phi.dtype)
            for x, phi in zip(values, position, strict=True)
        )

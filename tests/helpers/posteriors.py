"""Posteriors in coordinates."""

from pymc_sgmcmc.model.coordinates import coordinates_at
from pymc_sgmcmc.model.posterior import Posterior


def posterior_of(
    model, choice="lipschitz", *, temperature=1.0, values=None, point=None, **options
):  # fmt: skip
    """Return a model's posterior with its start and scales, there or at PyMC's initial point."""
    values = model.continuous_value_vars if values is None else values
    point = model.initial_point() if point is None else point
    coordinates, phi, scales = coordinates_at(model, values, choice, point, **options)
    return Posterior(model, coordinates, temperature), phi, scales

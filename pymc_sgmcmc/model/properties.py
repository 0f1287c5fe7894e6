"""Properties of a model: kinks of its density, improper priors, widths of priors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pymc as pm

from pymc.distributions.continuous import AsymmetricLaplaceRV, FlatRV, HalfFlatRV
from pymc.exceptions import SamplingError
from pymc.model import Model
from pytensor.graph.traversal import ancestors
from pytensor.scalar.basic import Abs, Maximum, Minimum
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.random.basic import LaplaceRV
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.backends.interpreting import INTERPRETER
from pymc_sgmcmc.model.coordinates import Coordinate
from pymc_sgmcmc.model.graphs import nodes_of
from pymc_sgmcmc.model.minibatch import unscaled

# Draws that a prior's width is estimated from: it is needed up to a factor of two
_DRAWS = 16

# sd over the median distance of two draws, of a normal law
_SD_OF_MEDIAN = 1.4826 / np.sqrt(2)


def is_sum_of_trees(rv: TensorVariable) -> bool:
    """Return whether a variable is ``pymc_bart``'s, whose step method keeps the values to itself.

    Moved by another method they would not follow, and with their flat priors explain the data.
    """
    return type(rv.owner.op).__module__.partition(".")[0] == "pymc_bart"


def has_kinks(model: Model) -> bool:
    """Return whether a gradient jumps: of a Laplace variable, or in a potential.

    There absolute values have kinks, and the larger or smaller of two numbers.
    """
    inner = [unscaled(rv) for rv in model.basic_RVs]
    if any(x.owner and isinstance(x.owner.op, LaplaceRV | AsymmetricLaplaceRV) for x in inner):
        return True
    elementwise = nodes_of(model.potentials, Elemwise, model.basic_RVs)
    return any(isinstance(node.op.scalar_op, Abs | Maximum | Minimum) for node in elementwise)


def improper(model: Model) -> str:
    """Name the variables with improper priors, or return an empty string."""
    if not (names := ", ".join(_flat(model))):
        return ""
    return (
        f"the improper prior of {names}, pm.Flat or pm.HalfFlat, leaves no posterior along "
        "directions that the data do not inform: give a proper one"
    )


def refuse_uninformed(model: Model) -> None:
    """Raise where nothing depends on a variable with an improper prior."""
    flat = _flat(model)
    graphs = [*model.observed_RVs, *(model.rvs_to_values[rv] for rv in model.observed_RVs)]
    graphs += [*model.potentials, *(x for rv in model.free_RVs for x in rv.owner.inputs)]
    used = {variable.name for variable in ancestors(graphs)} if flat else set()
    for name in flat:
        if name not in used:
            raise SamplingError(
                f"The variable '{name}' has an improper prior, and nothing that is observed "
                "depends on it: it has no posterior. Give it a proper prior, or leave it out."
            )


def _flat(model: Model) -> list[str]:
    return [str(rv.name) for rv in model.free_RVs if isinstance(rv.owner.op, FlatRV | HalfFlatRV)]


def prior_widths(coordinates: Sequence[Coordinate], seed: int) -> list[float]:
    """Return an sd of each variable's prior, in its coordinates.

    It comes from the median distance of two prior draws over all elements; it is 1 where θ is not
    the coordinate, as for bounded variables and standardised hierarchies, and where a prior cannot
    be drawn from.
    """
    return widths_of([c.rv if c.transform is None else None for c in coordinates], seed)


def widths_of(variables: Sequence[TensorVariable | None], seed: int) -> list[float]:
    """Return an sd of each variable's prior, 1 for None and where it cannot be drawn from."""
    drawn = iter(_prior_draws([rv for rv in variables if rv is not None], seed))
    widths = []
    for rv in variables:
        width = 1.0
        if rv is not None:
            x = np.asarray(next(drawn), dtype=float)
            width = _SD_OF_MEDIAN * float(np.median(np.abs(x[::2] - x[1::2])))
        widths.append(width if np.isfinite(width) and width > 0 else 1.0)
    return widths


def _prior_draws(variables: Sequence[TensorVariable], seed: int) -> Sequence[np.ndarray]:
    """Return prior draws of each variable, zeros of those that PyMC cannot draw."""
    if not variables:
        return []
    try:
        return pm.draw(variables, draws=_DRAWS, random_seed=seed, mode=INTERPRETER)
    except NotImplementedError:
        if len(variables) == 1:
            return [np.zeros(_DRAWS)]
        return [x for rv in variables for x in _prior_draws([rv], seed)]

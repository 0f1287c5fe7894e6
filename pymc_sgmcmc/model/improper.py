"""Variables with improper priors, of which only data make a posterior."""

from __future__ import annotations

from pymc.distributions.continuous import FlatRV, HalfFlatRV
from pymc.exceptions import SamplingError
from pymc.model import Model
from pytensor.graph.traversal import ancestors

__all__ = ["improper", "refuse_uninformed"]


def improper(model: Model) -> str:
    """Name the variables with improper priors, or return an empty string."""
    names = ", ".join(_flat(model))
    told = (
        f"the improper prior of {names}, pm.Flat or pm.HalfFlat, leaves no posterior along "
        "directions that the data do not inform: give a proper one"
    )
    return told if names else ""


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

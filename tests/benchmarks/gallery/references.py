"""What is known of the posteriors."""

from __future__ import annotations

import json

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from . import posteriordb
from .areas import AREAS
from .conjugate import CONJUGATE
from .inference_gym import GYM, gym_reference
from .many import MANY, moments_of_many
from .pairs import PAIRS_OF_EFFECTS
from .processes import PROCESSES
from .sparse import SPARSE_MOMENTS
from .twins import EFFECTS_OF_TWO_ROWS
from .writings import pair_of

FOLDER = Path(__file__).parents[1] / "references"
MOMENTS = "mean", "sd", "mcse_mean"


@dataclass(frozen=True)
class Reference:
    """Moments of one variable, in its constrained space and shape.

    ``mcse_mean`` is the Monte Carlo error of ``mean``; ``meta`` says where all this comes from
    and is the same for all variables of a model.
    """

    mean: np.ndarray
    sd: np.ndarray
    mcse_mean: np.ndarray
    meta: dict[str, Any]


def reference(name: str) -> dict[str, Reference]:
    """Return the moments of a model's variables."""
    if name in posteriordb.ORIGIN:
        return _of_posteriordb(name)
    if name in GYM:
        return {
            variable: Reference(*map(np.array, moments), meta={})
            for variable, moments in gym_reference(name).items()
        }
    exact = CONJUGATE | PROCESSES | AREAS | SPARSE_MOMENTS | PAIRS_OF_EFFECTS | EFFECTS_OF_TWO_ROWS
    if name in MANY or name in exact:
        moments = exact[name]() if name in exact else moments_of_many(name)
        return {
            variable: Reference(np.array(mean), np.array(sd), np.zeros_like(mean), {})
            for variable, (mean, sd) in moments.items()
        }
    stored = _stored(name)
    variables = stored.pop("variables")
    return {
        variable: Reference(**{key: np.array(value) for key, value in moments.items()}, meta=stored)
        for variable, moments in variables.items()
    }


def sampling(name: str) -> dict[str, Any]:
    """Return how NUTS sampled a model: draws, seconds, ESS and the like."""
    return {key: value for key, value in _stored(name).items() if key != "variables"}


def _stored(name: str) -> dict[str, Any]:
    name = "three_levels" if name == "three_levels_noncentred" else pair_of(name)
    file = FOLDER / f"{name}.json"
    if not file.exists():
        raise FileNotFoundError(f"no reference for {name}: python make_references.py {name}")
    return json.loads(file.read_text())


def _of_posteriordb(name: str) -> dict[str, Reference]:
    summary = dict(posteriordb.load(posteriordb.ORIGIN[name], "summary"))
    # "beta[2]" is the second element of Stan's "beta"
    elements: dict[str, list[dict[str, float]]] = {}
    for element, moments in summary.pop("parameters").items():
        elements.setdefault(element.partition("[")[0], []).append(moments)
    dimensions = posteriordb.load(posteriordb.ORIGIN[name], "info")["posterior"]["dimensions"]
    rows = posteriordb.ROWS.get(name, {})
    of_rows = {stan for parts in rows.values() for stan in parts}
    # What each variable is in Stan's program: a parameter, or several that are its rows
    stans = {stan: stan for stan in elements if stan not in of_rows} | rows

    def values(stan: str | tuple[str, ...], key: str) -> np.ndarray:
        if isinstance(stan, tuple):
            return np.stack([values(row, key) for row in stan])
        array = np.array([moments[key] for moments in elements[stan]])
        return array[0] if dimensions[stan] == 1 else array

    return {
        variable: Reference(**{key: values(stan, key) for key in MOMENTS}, meta=summary)
        for variable, stan in stans.items()
    }

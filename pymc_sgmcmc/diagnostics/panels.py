"""Figures of numbers by name: panels side by side, with a line for each name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import xarray as xr

from pymc_sgmcmc.checks import one_of

__all__ = ["Panel", "plotted"]

_VISUALS = "point", "bar", "band", "reference", "title"
_BACKENDS = "matplotlib", "bokeh", "plotly", "none"
_QUIET, _FLAGGED, _BAND, _LINE = "#595959", "#d55e00", "#ebebeb", "#999999"
# Inches: of a panel, around the lines of all, and of a line
_WIDTH, _MARGIN, _HEIGHT = 3.2, 1.2, 0.28


@dataclass
class Panel:
    """Numbers under a title; bars reach so far to both sides, and some lines are flagged."""

    title: str
    names: Sequence[str]
    values: np.ndarray  # (names, points of each)
    reach: np.ndarray | None = None  # (names,), of the first point
    flagged: np.ndarray | None = None  # (names,)
    band: tuple[float, float] | None = None
    reference: float | None = None
    most: float | None = None  # right end of an axis that begins at 0


def plotted(
    panels: Mapping[str, Panel],
    visuals: Mapping[str, Any] | None,
    backend: str | None,
    pc_kwargs: dict[str, Any],
) -> Any:
    """Return an ArviZ PlotCollection with a plot for each panel, by its key."""
    wanted: dict[str, Any] = {key: {} for key in _VISUALS} | dict(visuals or {})
    for name in wanted:
        one_of("A key of visuals", name, _VISUALS)
    # Here, for ArviZ imports JAX
    import arviz_plots as azp

    backend = backend or "matplotlib"
    draw: Any = import_module(f"arviz_plots.backend.{one_of('backend', backend, _BACKENDS)}")
    height = _MARGIN + _HEIGHT * max(len(panel.names) for panel in panels.values())
    figure = {"figsize": (_WIDTH * len(panels) + 1, height), "figsize_units": "inches"}
    if backend == "matplotlib":
        figure["layout"] = "constrained"
    figure |= pc_kwargs.pop("figure_kwargs", None) or {}
    collection: Any = azp.PlotCollection.wrap(  # type: ignore[attr-defined, no-untyped-call]
        xr.Dataset(dict.fromkeys(panels, 0.0)),
        backend=backend,
        figure_kwargs=figure,
        **{"cols": ["__variable__"], "col_wrap": len(panels), **pc_kwargs},
    )
    for key, panel in panels.items():
        _draw(panel, collection.get_target(key, {}), draw, wanted)
    return collection


def _draw(panel: Panel, target: Any, draw: Any, visuals: Mapping[str, Any]) -> None:
    def with_visual(name: str, visual: Any, *where: Any, **usual: Any) -> None:
        if visuals[name] is not False:
            visual(*where, target, **{**usual, **visuals[name]})

    lines = np.arange(len(panel.names))
    flagged = np.zeros(len(lines), bool) if panel.flagged is None else panel.flagged
    if panel.band is not None:
        with_visual("band", draw.vspan, *panel.band, color=_BAND)
    if panel.reference is not None:
        with_visual("reference", draw.vline, panel.reference, color=_LINE, width=1)
    for line, off, values in zip(lines, flagged, panel.values, strict=True):
        color = _FLAGGED if off else _QUIET
        if panel.reach is not None:
            ends = values[0] + panel.reach[line] * np.array([-1, 1])
            with_visual("bar", draw.line, ends, np.full(2, line), color=color)
        with_visual("point", draw.scatter, values, np.full(len(values), line), facecolor=color)
    with_visual("title", draw.title, panel.title)
    if panel.most is not None:
        draw.xlim((-0.05 * panel.most, 1.1 * panel.most), target)
    draw.yticks(lines, list(panel.names), target)
    draw.ylim((lines[-1] + 0.6, -0.6), target)

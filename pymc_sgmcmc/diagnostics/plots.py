"""Figures of a bias report, of what tuning chose, and of temperatures: panels side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import xarray as xr

from pymc_sgmcmc.chain.by_variable import CENTRING, NOISE, TEMPERATURE
from pymc_sgmcmc.chain.monitor import LARGEST_ERROR
from pymc_sgmcmc.checks import one_of, positive_int
from pymc_sgmcmc.convergence import error_of_mean

# Standard errors to both sides
_REACH = 2.0
_VISUALS = "point", "bar", "band", "reference", "title"
_BACKENDS = "matplotlib", "bokeh", "plotly", "none"
_QUIET, _FLAGGED, _BAND, _LINE = "#595959", "#d55e00", "#ebebeb", "#999999"
# Inches: of a panel, around the lines of all, and of a line
_WIDTH, _MARGIN, _HEIGHT = 3.2, 1.2, 0.28


def plot_bias(
    report: xr.Dataset,
    *,
    largest: int = 40,
    backend: str | None = None,
    visuals: Mapping[str, Any] | None = None,
    **pc_kwargs: Any,
) -> Any:
    """Plot the biases of a report with their errors, in units of posterior sds.

    A band shows the tolerance, bars reach ``critical_z`` standard errors to both sides, and
    what is flagged has another colour.

    Parameters
    ----------
    report : xarray.Dataset
        Of :func:`bias_report`.
    largest : int, default 40
        How many parameters are shown, those with the largest bias.
    backend : {"matplotlib", "bokeh", "plotly", "none"}, optional
        By default "matplotlib".
    visuals : dict, optional
        Arguments of "point", "bar", "band", "reference" and "title", or False to leave one out.
    **pc_kwargs
        For :meth:`arviz_plots.PlotCollection.wrap`, such as ``figure_kwargs``.

    Returns
    -------
    arviz_plots.PlotCollection
        One plot for each statistic, "mean" and "sd"; the figure is ``viz["figure"].item()``.

    Raises
    ------
    TypeError, ValueError
        If ``report`` is no report, or an argument is outside its range.
    """
    if not {"flagged", "relative"} <= set(getattr(report, "data_vars", ())):
        raise TypeError("report must be the Dataset that bias_report returns.")
    positive_int("largest", largest, usual=40)
    report = _with_dims(report, "statistic", "parameter")
    if not report.sizes["parameter"] or "sd" not in report["statistic"]:
        raise ValueError(
            f"report has {report.sizes['parameter']} parameters and the statistics "
            f"{', '.join(map(str, report['statistic'].values))}. Pass one with a parameter or more "
            "and both statistics, as bias_report returns them."
        )
    sizes = np.abs(np.nan_to_num(report["relative"].transpose("statistic", "parameter").values))
    order = np.argsort(-sizes.max(axis=0))
    shown = report.isel(parameter=np.sort(order[:largest]))
    reach = shown.attrs["critical_z"] * shown["se"] / shown["half"].sel(statistic="sd", drop=True)
    tolerance = report.attrs["tolerance"]
    panels = {
        str(statistic): _Panel(
            f"bias of the {statistic}, in posterior sds",
            list(one["parameter"].values),
            one["relative"].values[:, None],
            reach=reach.sel(statistic=statistic).values,
            flagged=one["flagged"].values,
            band=(-tolerance, tolerance),
            reference=0.0,
        )
        for statistic, one in ((s, shown.sel(statistic=s)) for s in shown["statistic"].values)
    }
    return _plotted(panels, visuals, backend, pc_kwargs)


def plot_tuning(
    dt: xr.DataTree,
    *,
    backend: str | None = None,
    visuals: Mapping[str, Any] | None = None,
    **pc_kwargs: Any,
) -> Any:
    """Plot what the tuning of each chain chose, from the statistics of its last draw.

    A point is a chain. Gradient noise costs nothing left of the line: from there on tuning would
    rather average more batches. A centring weight is the share of the data in what is known of a
    variable, on average over its elements.

    Parameters
    ----------
    dt : xarray.DataTree
        What ``pm.sample`` returned, or what was read from a file of it.
    backend, visuals, **pc_kwargs
        As of :func:`plot_bias`.

    Returns
    -------
    arviz_plots.PlotCollection
        Plots "step_size", "thin", "batches" and, where there are such statistics, "noise" and
        "centring".

    Raises
    ------
    TypeError, ValueError
        If ``dt`` has no draws of this package's step methods, or an argument is outside its range.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_sgmcmc as sg
    >>> with pm.Model():
    ...     x = pm.Normal("x", shape=3)
    ...     dt = pm.sample(step=sg.CoRVSGLD(), chains=2, draws=200, progressbar=False)
    >>> figure = plot_tuning(dt).viz["figure"].item()
    """
    stats = _statistics(dt)
    last = stats.isel(draw=-1)
    rows = int(last["batch_size"].max())
    titles = {
        "step_size": "step size",
        "thin": "updates a draw",
        "batches": f"batches of {rows:,} rows an update" if rows else "batches (all rows)",
    }
    panels = {}
    for name, title in titles.items():
        if last[name].size != last["batch_size"].size:
            continue  # PyMC's own step methods record one, too
        values = last[name].transpose("chain", ...).values.reshape(last.sizes["chain"], -1)
        chains = [f"chain {x}" for x in last["chain"].values]
        panels[name] = _Panel(title, chains, values, most=np.nanmax(values))
    of_each = {
        NOISE: ("gradient noise / bound", 1.0),
        CENTRING: ("centring weight", None),
    }
    for kind, (title, reference) in of_each.items():
        if of_kind := _of_kind(dt, last, kind):
            values = np.stack([x.values for x in of_kind.values()])
            most = max(1.0, np.nanmax(values))
            panels[kind] = _Panel(title, list(of_kind), values, reference=reference, most=most)
    return _plotted(panels, visuals, backend, pc_kwargs)


def plot_temperature(
    dt: xr.DataTree,
    *,
    backend: str | None = None,
    visuals: Mapping[str, Any] | None = None,
    **pc_kwargs: Any,
) -> Any:
    """Plot the temperature of each variable, which is 1 on average for exact draws.

    Its excess is that of the variable's variance. Bars reach two standard errors to both sides, a
    band shows what a warning tolerates beyond them, and lines beyond both have another colour. (A
    warning after sampling judges each chain and coordinate.) The first line is that of all
    coordinates; the next one, for ``SGHMC``, that of its momentum.

    Parameters
    ----------
    dt : xarray.DataTree
        What ``pm.sample`` returned, or what was read from a file of it.
    backend, visuals, **pc_kwargs
        As of :func:`plot_bias`.

    Returns
    -------
    arviz_plots.PlotCollection
        A plot "temperature".

    Raises
    ------
    TypeError, ValueError
        If ``dt`` has no draws of this package's step methods, or only of those whose law has no
        temperature (``FLA``, ``SGRLD``, ``MirrorSGLD``); or if an argument is outside its range.
    """
    stats = _statistics(dt)
    each = _of_kind(dt, stats, TEMPERATURE)
    if not each:
        raise ValueError(
            "dt has no temperatures of variables: the law of the draws of FLA, SGRLD and "
            "MirrorSGLD has none."
        )
    shared = {"all coordinates": TEMPERATURE, "momentum": "kinetic_temperature"}
    lines = {label: stats[name] for label, name in shared.items() if name in stats} | each
    means, errors = [], []
    for draws in lines.values():
        array = draws.transpose("chain", "draw", ...).values
        # Several steps are chains of their own; next to a rejected update there is no number
        array = np.moveaxis(array.reshape(*array.shape[:2], -1), 2, 1).reshape(-1, array.shape[1])
        means.append(np.nanmean(array))
        errors.append(error_of_mean(np.nan_to_num(array, nan=means[-1])[None])[0])
    mean, reach = np.array(means), _REACH * np.array(errors)
    panel = _Panel(
        "temperature",
        list(lines),
        mean[:, None],
        reach=reach,
        # Long steps of momenta have another variance, of which nothing warns
        flagged=(np.abs(mean - 1) > LARGEST_ERROR + reach) & (np.array(list(lines)) != "momentum"),
        band=(1 - LARGEST_ERROR, 1 + LARGEST_ERROR),
        reference=1.0,
    )
    return _plotted({"temperature": panel}, visuals, backend, pc_kwargs)


def _statistics(dt: Any) -> xr.Dataset:
    """Return the statistics of a result."""
    if not isinstance(dt, xr.DataTree) or "sample_stats" not in dt.children:
        raise TypeError("dt must be the DataTree that pm.sample returns, with its sample_stats.")
    stats = dt["sample_stats"].to_dataset()
    if "batch_size" not in stats:
        raise ValueError("dt has no draws of a step method of pymc_sgmcmc.")
    stats = _with_dims(stats, "chain", "draw")
    if 0 in (stats.sizes["chain"], stats.sizes["draw"]):
        raise ValueError(f"dt has no draws: its sample_stats have the sizes {dict(stats.sizes)}.")
    return stats


def _with_dims(chosen: xr.Dataset, *dims: str) -> xr.Dataset:
    """Return a dataset in which what was chosen along a dimension is one entry of it."""
    return chosen.expand_dims([dim for dim in dims if dim not in chosen.dims])


def _of_kind(dt: xr.DataTree, stats: xr.Dataset, kind: str) -> dict[str, xr.DataArray]:
    """Return the statistics of variables by their names, in the order of the posterior."""
    of_kind = {
        str(name)[len(kind) + 1 : -1]: stats[name]
        for name in stats
        if str(name).startswith(f"{kind}[") and not stats[name].isnull().all()
    }
    known = list(dt["posterior"].data_vars) if "posterior" in dt.children else []
    return {name: of_kind[name] for name in dict.fromkeys([*known, *of_kind]) if name in of_kind}


@dataclass
class _Panel:
    """Numbers under a title; bars reach so far to both sides, and some lines are flagged."""

    title: str
    names: Sequence[str]
    values: np.ndarray  # (names, points of each)
    reach: np.ndarray | None = None  # (names,), of the first point
    flagged: np.ndarray | None = None  # (names,)
    band: tuple[float, float] | None = None
    reference: float | None = None
    most: float | None = None  # right end of an axis that begins at 0


def _plotted(
    panels: Mapping[str, _Panel],
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


def _draw(panel: _Panel, target: Any, draw: Any, visuals: Mapping[str, Any]) -> None:
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

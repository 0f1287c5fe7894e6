"""The figure of a bias report."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from pymc_sgmcmc.checks import positive_int

__all__ = ["plot_bias_report"]

_QUIET, _FLAGGED = "0.35", "#d55e00"


def plot_bias_report(
    report: xr.Dataset,
    *,
    largest: int = 40,
    backend: str | None = None,
    figure_kwargs: dict[str, Any] | None = None,
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
    backend : {"matplotlib"}, optional
        The only one so far.
    figure_kwargs : dict, optional
        For the figure, such as ``figsize``.

    Returns
    -------
    arviz_plots.PlotCollection
        One plot for each statistic; the figure is ``viz["figure"].item()``.

    Raises
    ------
    TypeError, ValueError
        If ``report`` is no report, or an argument is outside its range.
    """
    if not {"flagged", "relative"} <= set(getattr(report, "data_vars", ())):
        raise TypeError("report must be the Dataset that bias_report returns.")
    positive_int("largest", largest, usual=40)
    if backend not in (None, "matplotlib"):
        raise ValueError(f"backend must be 'matplotlib' or left out, got {backend!r}.")
    # Here, for ArviZ imports JAX
    import arviz_plots as azp

    sizes = np.abs(np.nan_to_num(report["relative"].transpose("statistic", "parameter").values))
    order = np.argsort(-sizes.max(axis=0))
    shown = report.isel(parameter=np.sort(order[:largest]))
    height = 1.2 + 0.28 * shown.sizes["parameter"]
    plots: Any = azp.PlotCollection.wrap(  # type: ignore[attr-defined, no-untyped-call]
        shown[["relative"]].isel(parameter=0, drop=True),
        cols=["statistic"],
        backend="matplotlib",
        figure_kwargs={
            "figsize": (9, height), "sharex": True, "sharey": True, "layout": "constrained",
            **(figure_kwargs or {}),
        },
    )  # fmt: skip
    reach = shown.attrs["critical_z"] * shown["se"] / shown["half"].sel(statistic="sd", drop=True)
    lines = np.arange(shown.sizes["parameter"])
    for statistic in shown["statistic"].values:
        axis = plots.get_target(None, {"statistic": statistic})
        one, bars = shown.sel(statistic=statistic), reach.sel(statistic=statistic).values
        colors = np.where(one["flagged"], _FLAGGED, _QUIET)
        axis.axvspan(-report.attrs["tolerance"], report.attrs["tolerance"], color="0.92", zorder=0)
        axis.axvline(0, color="0.6", linewidth=1, zorder=1)
        x = one["relative"].values
        axis.hlines(lines, x - bars, x + bars, colors=colors, linewidth=1.5)
        axis.scatter(x, lines, c=colors, s=18, zorder=3)
        axis.set_title(f"bias of the {statistic}, in posterior sds")
        axis.set_yticks(lines, one["parameter"].values)
        axis.set_ylim(lines[-1] + 0.6, -0.6)
    return plots

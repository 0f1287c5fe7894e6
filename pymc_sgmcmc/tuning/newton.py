"""Step 2 of tuning: a rough centre by saddle-free, damped Newton steps."""

from __future__ import annotations

import numpy as np

from pymc_sgmcmc.tuning.failure import NEARER, named_step
from pymc_sgmcmc.tuning.surface import Surface, TuningError, difference_step, mean_hessian

__all__ = ["LARGEST_NEWTON", "log_volume", "mean_of_rows", "newton", "rows_of_a_search"]

# Most dimensions for which Newton steps find the rough centre. With the fit of independent normals
# instead, growth_curves of the accuracy table is wrong, even where the fit moves scales last
LARGEST_NEWTON = 128

_MOST_STEPS = 60

# Most steps of differences tried at one place, without and with kinks, and the largest factor
# between these with kinks
_LOOKS, _MOST_LOOKS, _FARTHER = 3, 8, 10.0
_MOST_DAMPING = 1e12

# Where a scale goes to 0, the density of a hierarchical model can rise without end, in ever less
# volume: log mass that the descent may lose, and for how many steps
_LOST = 2.0
_LOST_STEPS = 8


def rows_of_a_search(surface: Surface, rng: np.random.Generator) -> np.ndarray | None:
    """Draw the batches of a search for a rough centre, None if the full data are not more."""
    if not surface.batch_size:
        return None
    count = max(8, -(-30 * surface.dimension // surface.batch_size))
    return surface.draw_rows(rng, count) if count < surface.n_blocks else None


@named_step("the search for a centre")
def newton(
    surface: Surface,
    start: np.ndarray,
    rows: np.ndarray | None,
    *,
    most_steps: int = _MOST_STEPS,  # 0 measures the curvature alone
    rough: bool = False,  # end within about one sd, as is always done on fixed rows
) -> tuple[np.ndarray, np.ndarray, bool]:
    """Return a rough mode, (d,), its Hessian, (d, d), and whether the descent went on to less mass.

    Steps are damped (Levenberg, Marquardt), with eigenvalues by magnitude so that saddles repel
    (Dauphin et al., 2014, NeurIPS 27).
    """
    x, d = start, len(start)
    step = difference_step(surface)
    scale, first = np.full(d, 0.1), True
    damping, (u, g) = 1e-3, mean_of_rows(surface, x[None], rows)
    best, most, lost = (x, np.empty((d, d))), -np.inf, 0
    for k in range(most_steps + 1):
        for _ in range(_MOST_LOOKS if surface.kinked else _LOOKS):
            # Repeated until the differences' step fits the curvature that they find
            hessian = mean_hessian(
                lambda y, _: _mean_gradient(surface, y, rows), x[None], scale, step
            )
            if not np.all(np.isfinite(hessian)):
                scale = scale / 100
                continue
            diagonal = np.abs(np.diag(hessian))
            found = 1 / np.sqrt(np.maximum(diagonal, 1e-12 * diagonal.max() + 1e-300))
            # Between kinks a density may be flat, as far as these differences reach
            flat = surface.kinked and bool(np.any(found > _FARTHER * scale))
            if flat:
                found = np.minimum(found, _FARTHER * scale)
            change = np.max(np.abs(np.log(found / scale)))
            scale, settled = found, change < np.log(30.0)
            if not flat and (settled or not first):
                break
        first = False
        _refuse_unusable(hessian)
        if k == most_steps:
            break
        w, v = np.linalg.eigh(hessian * np.outer(scale, scale))
        slope = v.T @ (scale * g[0])
        largest = np.abs(w).max()
        mass = log_volume(hessian, scale, surface.unbounded) - float(u[0])
        if mass > most:
            best, most = (x, hessian), mass
        lost = lost + 1 if mass < most - _LOST else 0
        if lost == _LOST_STEPS:
            break
        decrement = float(np.sum(slope**2 / np.maximum(np.abs(w), 1e-8 * largest)))
        while damping < _MOST_DAMPING:
            move = -scale * (v @ (slope / (np.abs(w) + damping * largest)))
            u_new, g_new = mean_of_rows(surface, (x + move)[None], rows)
            if np.all(np.isfinite(g_new)) and u_new[0] <= u[0]:
                break
            damping *= 6
        else:
            break
        fell = float(u[0] - u_new[0])
        x, u, g = x + move, u_new, g_new
        damping = max(damping / 6, 1e-8)
        near = decrement < d
        if near if rough or rows is not None else (fell < 0.01 and decrement < 0.1 * d):
            break
    return (*best, True) if lost else (x, hessian, False)


def _refuse_unusable(hessian: np.ndarray) -> None:
    if not np.all(np.isfinite(hessian)):
        raise TuningError(f"the search for a centre met a non-finite curvature. {NEARER}")
    if not hessian.any():
        raise TuningError(
            "the search for a centre met a density without curvature in any direction: what "
            "is sampled has no effect on the data there, or no proper prior. Give every "
            f"variable a proper prior. {NEARER}"
        )


def log_volume(hessian: np.ndarray, scale: np.ndarray, free: np.ndarray) -> float:
    """Return the log volume of the Gaussian along variables without bounds, given the others."""
    if not free.any():
        return 0.0
    scale = scale[free]
    w = np.abs(np.linalg.eigvalsh(hessian[np.ix_(free, free)] * np.outer(scale, scale)))
    return float(np.sum(np.log(scale)) - np.sum(np.log(np.maximum(w, 1e-8 * w.max()))) / 2)


def mean_of_rows(
    surface: Surface, points: np.ndarray, rows: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return U and ∇U, on the full data or averaged over fixed batches."""
    if rows is None:
        return surface.full(points)
    u, g = surface.batch(*_each_batch(points, rows))
    batches = len(points), len(rows)
    return u.reshape(batches).mean(axis=1), g.reshape(*batches, -1).mean(axis=1)


def _mean_gradient(surface: Surface, points: np.ndarray, rows: np.ndarray | None) -> np.ndarray:
    if rows is None:
        return surface.full(points)[1]
    g = surface.batch_gradient(*_each_batch(points, rows))
    mean: np.ndarray = g.reshape(len(points), len(rows), -1).mean(axis=1)
    return mean


def _each_batch(points: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.repeat(points, len(rows), axis=0), np.tile(rows, (len(points), 1))

"""Step 3 of tuning: centre and whitening from Hessians averaged over the bulk."""

from __future__ import annotations

import numpy as np

from pymc_sgmcmc.tuning.failure import NEARER, named_step
from pymc_sgmcmc.tuning.mean_curvature import mean_curvature
from pymc_sgmcmc.tuning.surface import (
    Surface,
    TuningError,
    antithetic,
    difference_step,
    mean_hessian,
)

__all__ = [
    "bulk_of_full_data",
    "bulk_of_minibatches",
    "inverse_root",
    "measured_diagonal",
    "refined",
    "rewhitened",
    "upright",
]

_LEAST_EIGENVALUE = 1e-8
_STEP, _LEAST_STEP = 0.7, 0.02
_MOST_ROUNDS, _MOST_PASSES = 10, 30

# With more blocks of data than this a descent takes whole steps, and few passes
_MANY_BLOCKS = 2000
_MOST_NEWTON, _FAR_BATCHES = 8, 256
_MOST_MOVES = 3
_MOST_WHITENINGS = 2

# Largest error of the centre, in sds: beyond it control variates become noisier
_NEAR = 0.3

# Largest factor by which a length changes in a settled round, the factor that shows rounds leaving
# the bulk, and settled rounds that are enough
_SETTLED, _ASTRAY = 1.5, 4.0
_SETTLED_ROUNDS = 3

# Rows times gradients for a mean Hessian, and for the last; the fixed cost of a gradient, in rows
_WORK = 4e6
_LAST_WORK = 5e7
_ROWS_OF_OVERHEAD = 200

# Numbers computed for the last mean Hessian, and for all rounds on the full data: some ten seconds;
# least Hessians whatever they cost
_NUMBERS, _LEAST = int(2.5e10), 2

# Most places, each with its opposite, at which one block is evaluated
_MOST_PAIRS = 4

# Pairs per dimension of a regression, least and most on the full data: errors from what is not
# linear in a gradient fall as their root
_PAIRS_OF_REGRESSION = (8, 64)

# Pairs and rounds for a diagonal, whose errors would stay with noise that is not normal
_PAIRS_OF_DIAGONAL, _ROUNDS_OF_DIAGONAL = 8, 8


def inverse_root(hessian: np.ndarray, circular: np.ndarray | None = None) -> np.ndarray:
    """Return L with LL' = |H|⁻¹, the eigenvalues taken by magnitude, shape (d, d).

    Circular coordinates are not mixed with others, and have lengths of at most one.
    """
    if circular is not None and circular.any():
        lengths = 1 / np.sqrt(np.maximum(np.abs(np.diag(hessian)[circular]), 1.0))
        return _apart(circular, inverse_root(_of_line(hessian, circular)), lengths)
    if not hessian.size:
        return hessian
    d = np.sqrt(np.maximum(np.abs(np.diag(hessian)), 1e-300))
    w, v = np.linalg.eigh(hessian / np.outer(d, d))
    w = np.maximum(np.abs(w), _LEAST_EIGENVALUE * np.abs(w).max())
    root: np.ndarray = (v / np.sqrt(w)) / d[:, None]
    return root


def upright(root: np.ndarray) -> np.ndarray:
    """Return the L of the same LL' that mixes coordinates least: symmetric but for their scales."""
    scale = np.sqrt(np.sum(root**2, axis=1))
    unit = root / scale[:, None]
    w, v = np.linalg.eigh(unit @ unit.T)
    found: np.ndarray = scale[:, None] * ((v * np.sqrt(np.maximum(w, 0))) @ v.T)
    return found


def refined(
    root: np.ndarray, curvature: np.ndarray, circular: np.ndarray | None = None
) -> tuple[np.ndarray, float]:
    """Return L with LL' = H⁻¹ from L'HL, and the largest factor by which a length changed.

    Lengths at most double, as an old L with H near zero or negative reached too far. Those on
    circles are not mixed, and at most one, as a nearly flat density shows no width.
    """
    if circular is not None and circular.any():
        old = np.diag(root)[circular]
        h = np.diag(curvature)[circular] / old**2
        lengths = 1 / np.sqrt(np.maximum(h, np.maximum(0.25 / old**2, 1.0)))
        line, change = refined(_of_line(root, circular), _of_line(curvature, circular))
        change = max(change, float(np.max(np.maximum(lengths / old, old / lengths))))
        return _apart(circular, line, lengths), change
    if not root.size:
        return root, 1.0
    w, v = np.linalg.eigh(curvature)
    lengths = 1 / np.sqrt(np.maximum(w, 0.25))
    change = float(np.max(np.maximum(lengths, 1 / lengths)))
    return (root @ v) * lengths, change


@named_step("the whitening")
def bulk_of_full_data(
    surface: Surface,
    centre: np.ndarray,
    root: np.ndarray,
    rng: np.random.Generator,
    *,
    points: int = 32,
    rounds: int = _MOST_ROUNDS,
) -> tuple[np.ndarray, np.ndarray, bool]:
    """Move m and L from the mode to the bulk; return whether L still changed much, too.

    The curvature at a mode hardly describes a skewed or hierarchical posterior; averaged over m +
    Le it is that of the best Gaussian approximation.
    """
    d, step = len(centre), difference_step(surface)
    settled, changes = 0, [1.0]
    # Costly Hessians are of fewer points, by differences that cost half
    most = max(_LEAST, _NUMBERS // (_MOST_ROUNDS * d * surface.numbers) // 2 * 2)
    central = most >= 2 * points
    for k in range(rounds):
        # Few points until the whitening settles, as only the last rounds are kept
        count = points if settled or 2 * k >= rounds else points // 4
        x = centre + antithetic(rng, count // 2, d) @ root.T
        gradients = surface.full(x)[1]
        x = x[np.all(np.isfinite(gradients), axis=1)]
        if surface.kinked:
            pairs = min(count, most) * d
            found = mean_curvature(lambda y: surface.full(y)[1], centre, root, rng, pairs)
        else:
            hessian = mean_hessian(
                lambda y, _: surface.full(y)[1], x[:most], _sds(root), step, central=central
            )
            found = root.T @ hessian @ root
        if not np.all(np.isfinite(found)):
            # The bulk is narrower than the curvature at the centre says
            root = root / 2
            changes.append(np.inf)
            continue
        root, change = refined(root, found, surface.circular)
        changes.append(change)
        slope = np.clip(root.T @ _finite_mean(gradients), -3, 3)
        centre = centre - _STEP * root @ slope
        near = change < (_SETTLED if settled else 2 * _SETTLED) and slope @ slope < 0.1 * d
        settled = settled + 1 if near else 0
        if settled == _SETTLED_ROUNDS:
            break
    return centre, root, max(changes[-_SETTLED_ROUNDS:]) > _ASTRAY


@named_step("the whitening")
def bulk_of_minibatches(
    surface: Surface, centre: np.ndarray, root: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Move centre and whitening to the bulk, each gradient on one batch."""
    for _ in range(_MOST_MOVES):
        for _ in range(_MOST_WHITENINGS):
            root, change = _whiten(surface, centre, root, rng, _WORK)
            if change < 2:
                break
        before = centre
        centre, form = _descend(surface, centre, root, rng)
        if form <= 3 and np.abs(np.linalg.solve(root, centre - before)).max() < 3:
            break
    root, _ = _whiten(surface, centre, root, rng, _LAST_WORK)
    centre, _ = _descend(surface, centre, root, rng)
    return centre, root


@named_step("the whitening")
def rewhitened(
    surface: Surface, centre: np.ndarray, root: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return centre and whitening for a centre that the chain itself found."""
    if surface.batch_size:
        # The old L is nearly right: where Hessians cost far too much, a few correct it
        count, most = _hessians(surface, _LAST_WORK)
        work = _LAST_WORK if count <= 2 * most else _WORK
        return centre, _whiten(surface, centre, root, rng, work)[0]
    return bulk_of_full_data(surface, centre, root, rng, rounds=3)[:2]


def _hessians(surface: Surface, work: float) -> tuple[int, int]:
    """Return how many batch Hessians take so much work, and how many are affordable."""
    d, rows = surface.dimension, surface.batch_size + _ROWS_OF_OVERHEAD
    dear = int(_NUMBERS * work / _LAST_WORK / (d * surface.numbers))
    return max(8, int(work / (d * rows))), max(_LEAST, dear)


def _whiten(
    surface: Surface, centre: np.ndarray, root: np.ndarray, rng: np.random.Generator, work: float
) -> tuple[np.ndarray, float]:
    """Average Hessians of batches or, if it costs little more, of all blocks of the data.

    A feature of few rows is in few batches, and in these counts too much. Each block is evaluated
    at several places, as at one alone the curvature of such a feature is chance.
    """
    if surface.kinked:
        return _whiten_kinked(surface, centre, root, rng, work)
    d, step = len(centre), difference_step(surface)
    count = min(_hessians(surface, work))
    blocks = surface.n_blocks
    if blocks <= 1.5 * count:
        pairs = int(min(count // (2 * blocks), _MOST_PAIRS))
        e = [rng.standard_normal((blocks, d)) for _ in range(pairs)]
        x = np.concatenate(
            [sign * part for part in e for sign in (1, -1)]
            or [antithetic(rng, (blocks + 1) // 2, d)[:blocks]]
        )

        def gradients(x: np.ndarray, p: np.ndarray) -> np.ndarray:
            # Shares of the blocks add up; mean_hessian averages
            return blocks * surface.block(x, p % blocks)
    else:
        rows = surface.draw_rows(rng, count)
        x = antithetic(rng, (count + 1) // 2, d)[:count]

        def gradients(x: np.ndarray, p: np.ndarray) -> np.ndarray:
            return surface.batch_gradient(x, rows[p])

    hessian = mean_hessian(gradients, centre + x @ root.T, _sds(root), step, central=False)
    return _refined(surface, root, root.T @ hessian @ root)


def _whiten_kinked(
    surface: Surface, centre: np.ndarray, root: np.ndarray, rng: np.random.Generator, work: float
) -> tuple[np.ndarray, float]:
    """Average curvature by regression, on the full data if as much work is enough for it."""
    pairs = work / (2 * (surface.batch_size + _ROWS_OF_OVERHEAD))
    pairs = min(pairs, _hessians(surface, work)[1] * len(centre) / 2)
    least, most = (n * len(centre) for n in _PAIRS_OF_REGRESSION)
    of_all = pairs / surface.n_blocks
    if of_all >= least:
        found = mean_curvature(
            lambda x: surface.full(x)[1], centre, root, rng, int(min(of_all, most))
        )
    else:
        rows = np.repeat(surface.draw_rows(rng, int(max(pairs, least))), 2, axis=0)
        found = mean_curvature(
            lambda x: surface.batch_gradient(x, rows),
            centre, root, rng, len(rows) // 2, batches=True,
        )  # fmt: skip
    return _refined(surface, root, found)


def _refined(surface: Surface, root: np.ndarray, curvature: np.ndarray) -> tuple[np.ndarray, float]:
    if not np.all(np.isfinite(curvature)):
        raise TuningError(f"the whitening met non-finite gradients all around the centre. {NEARER}")
    return refined(root, curvature, surface.circular)


def _descend(
    surface: Surface, centre: np.ndarray, root: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, float]:
    """Step once per pass over the data; return also the mean curvature along L."""
    if surface.n_blocks > _MANY_BLOCKS and (found := _descend_far(surface, centre, root, rng)):
        return found
    d, form, rate = len(centre), 1.0, _STEP
    at, last, move = centre, np.inf, np.zeros(d)
    for _ in range(_MOST_PASSES):
        e = antithetic(rng, surface.n_blocks, d)
        which = np.repeat(np.arange(surface.n_blocks), 2)
        whitened = surface.block(at + e @ root.T, which) @ root
        whitened = np.where(np.isfinite(whitened), whitened, 0.0)
        slope = whitened.reshape(-1, 2, d).mean(axis=1).sum(axis=0)
        form = float(np.sum((whitened[::2] - whitened[1::2]) * e[::2]) / (2 * d))
        size = float(slope @ slope)
        if size > 2 * last:
            # Along some direction the curvature is far larger than L says
            rate /= 4
            at = at - move + move / 4
            move = move / 4
            continue
        if size > 0.7 * last:
            # The centre oscillates
            rate /= 2
        last = size
        if rate < _LEAST_STEP or (size < 0.02 * d and np.abs(slope).max() < _NEAR):
            break
        move = -rate * root @ np.clip(slope, -10, 10)
        at = at + move
    return at, form


def _descend_far(
    surface: Surface, centre: np.ndarray, root: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, float] | None:
    """Descend by whole Newton steps, one pass over the data each; None if a step does not help.

    With very many rows a centre from some batches is a hundred sds away, and the curvature constant
    on the way. Differences of batches add what the density's shape contributes to the slope.
    """
    at, d = centre, len(centre)
    [gradient] = surface.full(at[None])[1]
    for _ in range(_MOST_NEWTON):
        slope = root.T @ gradient
        if slope @ slope < 0.02 * d and np.abs(slope).max() < _NEAR:
            break
        there = at - root @ slope
        [gradient] = surface.full(there[None])[1]
        left = root.T @ gradient
        if not np.all(np.isfinite(left)) or left @ left > slope @ slope / 4:
            return None
        at = there
    rows, e = surface.draw_rows(rng, _FAR_BATCHES), antithetic(rng, _FAR_BATCHES, d)
    either = surface.batch_gradient(at + e @ root.T, np.repeat(rows, 2, axis=0)) @ root
    middle = surface.batch_gradient(np.repeat(at[None], len(rows), axis=0), rows) @ root
    if not np.all(np.isfinite(either)):
        return None
    above, below = either[::2], either[1::2]
    form = float(np.sum((above - below) * e[::2]) / (2 * d * len(rows)))
    slope = root.T @ gradient + ((above + below) / 2 - middle).mean(axis=0)
    return at - _STEP * root @ np.clip(slope, -10, 10), form


def measured_diagonal(
    surface: Surface, centre: np.ndarray, sd: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    r"""Return a diagonal L from curvatures at pairs x ± σe, each on a batch of its own.

    The mean of :math:`(g_+ - g_-) e / 2\sigma` over that of :math:`e^2` is exact for independent
    normals; the numerator alone is off by :math:`\sqrt{2 / n}` after n pairs.
    """
    d = len(centre)
    products, squares = np.zeros(d), np.zeros(d)
    for _ in range(_ROUNDS_OF_DIAGONAL):
        e = antithetic(rng, _PAIRS_OF_DIAGONAL, d)
        rows = np.repeat(surface.draw_rows(rng, _PAIRS_OF_DIAGONAL), 2, axis=0)
        g = surface.batch_gradient(centre + sd * e, rows)
        e, change = e[::2], g[::2] - g[1::2]
        finite = np.all(np.isfinite(change), axis=1)
        products += np.sum(change[finite] * e[finite], axis=0)
        squares += np.sum(e[finite] ** 2, axis=0)
    ratio = products * sd / (2 * np.maximum(squares, np.finfo(float).tiny))
    # The fit is kept where the curvature is not positive, or far from the fit's
    usable = ~surface.circular & (ratio > 1 / _ASTRAY**2) & (ratio < _ASTRAY**2)
    measured: np.ndarray = np.where(usable, sd / np.sqrt(np.where(usable, ratio, 1.0)), sd)
    return measured


def _of_line(matrix: np.ndarray, circular: np.ndarray) -> np.ndarray:
    found: np.ndarray = matrix[np.ix_(~circular, ~circular)]
    return found


def _apart(circular: np.ndarray, line: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return L from its non-circular block and the lengths of circular coordinates."""
    root = np.zeros((len(circular), len(circular)))
    root[np.ix_(~circular, ~circular)] = line
    root[circular, circular] = lengths
    return root


def _sds(root: np.ndarray) -> np.ndarray:
    """Return conditional sds of N(0, LL'), (d,), along which a difference stays in the bulk."""
    inverse = np.linalg.pinv(root)
    # A direction without any curvature has a length that pinv takes for infinite
    return np.asarray(1 / np.sqrt(np.maximum(np.sum(inverse**2, axis=0), 1e-100)))


def _finite_mean(gradients: np.ndarray) -> np.ndarray:
    finite = gradients[np.all(np.isfinite(gradients), axis=1)]
    mean: np.ndarray = finite.mean(axis=0) if len(finite) else np.zeros(gradients.shape[1])
    return mean

"""The choice between the centred and the non-centred writing, for each element."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.kernel.compiled_model import CompiledModel
from pymc_sgmcmc.model.hierarchy import depends_on
from pymc_sgmcmc.tuning.surface import Surface

__all__ = ["WritingChoice", "with_weight"]

# Positions at which scales are seen, and the quantiles between which they are the bulk's
_POSITIONS = 64
_LOW, _HIGH = 0.05, 0.95

# Logarithm of a ratio of precisions that makes no difference
_SAME = 1e-3

# Pairs of opposite positions at which the curvature is seen, on the full data: of a group of few
# rows a part of the data says anything
_PAIRS = 16


def with_weight(
    model: CompiledModel, scales: Sequence[np.ndarray], weight: float
) -> list[np.ndarray]:
    """Return scales in which every weight is the same."""
    fitted = [c for c in model.posterior.coordinates if c.scale is not None]
    return [
        np.full_like(scale, weight) if c.weighted else scale
        for c, scale in zip(fitted, scales, strict=True)
    ]


class WritingChoice:
    """Chooses weights level by level, from the data upwards.

    In non-centred coordinates the prior's curvature along an element is 1, so that what is more
    is what the likelihood says of it. What it says of an element with other elements below
    depends on their writing, which is chosen first.

    Parameters
    ----------
    model : CompiledModel
        The model.
    """

    def __init__(self, model: CompiledModel) -> None:
        self._model = model
        self._undecided = {c.rv: c for c in model.posterior.coordinates if c.weighted}
        self.is_first = True

    @property
    def is_done(self) -> bool:
        """Whether every element has its weight."""
        return not self._undecided

    def next_level(
        self,
        surface: Surface,
        scales: Sequence[np.ndarray],
        others: Sequence[np.ndarray],
        centre: np.ndarray,
        root: np.ndarray,
        rng: np.random.Generator,
    ) -> list[np.ndarray]:
        """Choose for the variables below which all others are chosen.

        Parameters
        ----------
        surface : Surface
            The potential in the coordinates of these scales.
        scales, others : sequence of ndarray
            What is fixed of the coordinates, and the variables of other steps.
        centre, root : ndarray
            The bulk in these coordinates.
        rng : numpy.random.Generator
            The chain's.

        Returns
        -------
        list of ndarray
            The scales, with weights of 1 where an element shall be centred.
        """
        coordinates = self._model.posterior.coordinates
        self.is_first = False
        level = {rv for rv in self._undecided if not self._below(rv)}
        gains = self._gains(surface, scales, others, centre, root, rng)
        fitted = [c for c in coordinates if c.scale is not None]
        chosen = list(scales)
        for k, c in enumerate(fitted):
            if c.rv in level:
                weight = np.where(gains[c.rv] > 0, 1, scales[k])
                chosen[k] = weight.astype(scales[k].dtype)
        for rv in level:
            del self._undecided[rv]
        return chosen

    def _below(self, rv: TensorVariable) -> bool:
        """Whether there is an undecided variable of which this one is a parent."""
        others = [other for other in self._undecided if other is not rv]
        maps = [(self._undecided[other].map, other.owner.inputs) for other in others]
        return any(depends_on(map_.parents(*inputs), {rv}) for map_, inputs in maps)

    def _gains(
        self,
        surface: Surface,
        scales: Sequence[np.ndarray],
        others: Sequence[np.ndarray],
        centre: np.ndarray,
        root: np.ndarray,
        rng: np.random.Generator,
    ) -> dict[TensorVariable, np.ndarray]:
        """Return what centring gains for each element, shaped as its coordinates."""
        model, posterior = self._model, self._model.posterior
        split = [int(np.prod(x.type.shape)) for x in posterior.phi]
        ends = np.cumsum(split)[:-1]

        def parts(flat: np.ndarray) -> list[np.ndarray]:
            return [
                part.reshape(x.type.shape).astype(x.dtype)
                for part, x in zip(np.split(flat, ends), posterior.phi, strict=True)
            ]

        curvature = _curvatures(surface, centre, root, rng)
        e = rng.standard_normal((_POSITIONS, len(centre)))
        moved = centre + (e * root if root.ndim == 1 else e @ root.T)
        seen = [model.spreads(parts(x), scales, others) for x in moved]
        found: dict[TensorVariable, np.ndarray] = {}
        for c, h in zip(posterior.coordinates, parts(curvature), strict=True):
            if c.weighted:
                variances = np.stack([places[len(found)].astype(float) for places in seen]) ** 2
                with np.errstate(all="ignore"):  # a bulk that is none has no finite gain
                    information = c.map.information(h - 1) / variances.mean(axis=0)
                    found[c.rv] = c.map.pooled(_gain(variances, information))
        return found


def _curvatures(
    surface: Surface, centre: np.ndarray, root: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Return the curvature of the full U along each coordinate.

    A dense L of the full data is made of it. From batches L knows little of groups of few rows;
    there all coordinates are moved at once, on the full data, to see by how much L is wrong.
    """
    d = len(centre)
    if root.ndim == 1:
        expected = root**-2.0

        def of_root(move: np.ndarray) -> np.ndarray:
            return expected * move
    else:
        inverse = np.linalg.pinv(root)
        expected = np.sum(inverse**2, axis=0)
        if not surface.batch_size:
            return expected

        def of_root(move: np.ndarray) -> np.ndarray:
            return inverse.T @ (inverse @ move)

    width = expected**-0.5
    error = np.zeros(d)
    for sign in rng.choice([-1.0, 1.0], size=(_PAIRS, d)):
        move = width * sign
        _, gradient = surface.full(centre + np.outer([1, -1], move))
        seen = (gradient[0] - gradient[1]) / 2 - of_root(move)
        error += seen / (move * _PAIRS)
    return np.where(np.isfinite(error), expected + error, 1.0)


def _gain(variances: np.ndarray, information: np.ndarray) -> np.ndarray:
    """Return how much less the precision of an element varies if it is centred, as a logarithm.

    Given its scale σ and the information I of the likelihood, the precision of an element is
    1 / σ² + I in centred coordinates and 1 + I σ² in the others. From the middle of the bulk to
    where σ is low the one grows, to where it is high the other.
    """
    low, middle, high = np.quantile(variances, [_LOW, 0.5, _HIGH], axis=0)
    known = np.maximum(information, 0)
    centred = np.log1p(known * low) - np.log(low) - np.log1p(known * middle) + np.log(middle)
    non_centred = np.log1p(known * high) - np.log1p(known * middle)
    # Where the scale is known, only a location is common: the data's share decides
    same = (centred < _SAME) & (non_centred < _SAME)
    return np.where(same, known * middle - 1, non_centred - centred)

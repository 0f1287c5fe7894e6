"""The coordinates of a hierarchy during the search for the bulk."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pymc_sgmcmc.kernel.engine import Engine
from pymc_sgmcmc.kernel.options import LARGEST_DENSE
from pymc_sgmcmc.kernel.potential import Potential
from pymc_sgmcmc.tuning.centre import WritingChoice, with_weight
from pymc_sgmcmc.tuning.density import Density
from pymc_sgmcmc.tuning.surface import Surface

__all__ = ["Writing"]

# Half the distance between the two points of a map's slope, in posterior sds
_SECANT = 0.1


class Writing:
    """Changes the coordinates of a surface to those of a :class:`WritingChoice`."""

    def __init__(
        self, density: Density, surface: Surface, engine: Engine, rng: np.random.Generator
    ) -> None:
        self._density = density
        self._surface = surface
        self._engine = engine
        self._rng = rng
        self._begun_at = density.scales
        self._choice = WritingChoice(engine)

    def move(self) -> None:
        """Have the choice repeated at another place."""
        self._choice.move()

    def undo(self) -> None:
        """Restore the initial coordinates, and forget the choice."""
        self._density.set_scales(self._begun_at)
        self._choice = WritingChoice(self._engine)

    def __call__(
        self, centre: np.ndarray, root: np.ndarray, *, at_mode: bool = False
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """Change the coordinates; return centre and root in them, None if nothing changes.

        With ``at_mode`` they are a mode and the root of the curvature there.
        """
        density, choice = self._density, self._choice
        written, changed = density.scales, False
        # The choice is made in non-centred coordinates
        if choice.is_first and not choice.is_done(at_mode=at_mode):
            centre, root = self._moved(centre, root, with_weight(self._engine, written, 0.0))
        while not choice.is_done(at_mode=at_mode):
            scales = choice.next_level(
                self._surface, density.scales, density.others, centre, root, self._rng,
                at_mode=at_mode,
            )  # fmt: skip
            centre, root = self._moved(centre, root, scales)
            changed = not all(map(np.array_equal, scales, written))
            if changed and not at_mode:
                break
        return (centre, root) if changed else None

    def _moved(
        self, centre: np.ndarray, root: np.ndarray, scales: Sequence[np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Change the coordinates to other scales, and return the bulk in them."""
        if all(map(np.array_equal, scales, self._density.scales)):
            return centre, root
        moved = self._moved_root if len(centre) <= LARGEST_DENSE else self._moved_sds
        root = moved(centre, root, scales)
        return Potential.join(
            self._density.rewritten(self._density.views[0].split(centre), scales)
        ), root

    def _moved_root(
        self, centre: np.ndarray, root: np.ndarray, scales: Sequence[np.ndarray]
    ) -> np.ndarray:
        """Return L in coordinates of other scales, by the slopes of the map along its columns."""
        density, columns = self._density, np.diag(root) if root.ndim == 1 else root

        def moved(flat: np.ndarray) -> np.ndarray:
            phi = density.views[0].split(flat)
            found = self._engine.at_scales(phi, density.scales, scales, density.others)
            return Potential.join(found)

        pairs = [(moved(centre + _SECANT * c), moved(centre - _SECANT * c)) for c in columns.T]
        return np.stack([a - b for a, b in pairs], axis=1) / (2 * _SECANT)

    def _moved_sds(
        self, centre: np.ndarray, sd: np.ndarray, scales: Sequence[np.ndarray]
    ) -> np.ndarray:
        """Return sds in coordinates of other scales, each variable's with all others held."""
        split, found = self._density.views[0].split, []
        phi, widths = split(centre), split(sd)
        known = self._engine.standardised(scales)
        for k, width in enumerate(widths):
            if known[k]:
                found.append(np.ones_like(width))
                continue
            moves = [_SECANT * w * (j == k) for j, w in enumerate(widths)]
            above, below = (
                self._engine.at_scales(
                    [(x + side * move).astype(x.dtype) for x, move in zip(phi, moves, strict=True)],
                    self._density.scales,
                    scales,
                    self._density.others,
                )[k]
                for side in (1, -1)
            )
            moved = np.abs(above - below) / (2 * _SECANT)
            # The old width is kept where the secant is lost in rounding
            found.append(np.where(moved > 0, moved, width))
        return Potential.join(found)

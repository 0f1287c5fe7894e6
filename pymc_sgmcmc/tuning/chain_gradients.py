"""Gradients with respect to a chain's future coordinates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from pymc_sgmcmc.tuning.surface import Surface
from pymc_sgmcmc.tuning.turn import Turn

__all__ = ["LARGEST", "ChainGradients", "ranges_of"]

# Numbers in gradients that are evaluated in one call
LARGEST = 2**21


class ChainGradients:
    """Gradients of a surface for ψ, where φ = m + L turn(ψ), L diagonal of shape (d,)."""

    def __init__(
        self, surface: Surface, centre: np.ndarray, root: np.ndarray, turn: Turn | None
    ) -> None:
        self.surface, self.centre, self._root, self._turn = surface, centre, root, turn

    def pulled(self, gradient: np.ndarray) -> np.ndarray:
        """Return gradients with respect to ψ, shape (n, d)."""
        whitened: np.ndarray = gradient * self._root
        return whitened if self._turn is None else self._turn.pull_back(whitened)

    def gradients(self, psi: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return gradients of batches at one position, or one position each, shape (n, d)."""
        turned = psi if self._turn is None else self._turn(psi)
        phi = np.broadcast_to(self.centre + self._root * turned, (len(rows), len(self.centre)))
        each = max(2, LARGEST // phi.shape[1])
        parts = [
            self.surface.batch_gradient(phi[k : k + each], rows[k : k + each])
            for k in range(0, len(rows), each)
        ]
        return self.pulled(np.concatenate(parts))


def ranges_of(sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield where each variable's coordinates begin and end."""
    ends = np.cumsum(sizes).tolist()
    return zip([0, *ends[:-1]], ends, strict=True)

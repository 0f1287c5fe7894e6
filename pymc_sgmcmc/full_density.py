"""The log density of the full data, as a sum over blocks of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor

from pymc_sgmcmc.coordinates import INTERPRETER
from pymc_sgmcmc.graphs import gradient_of
from pymc_sgmcmc.posterior import Posterior

__all__ = ["FullDensity"]

_MODES = {"jax": "JAX", "numba": "NUMBA", "interpreter": INTERPRETER}


class FullDensity:
    """The log density of the full data and its gradient.

    One function of a block of rows is compiled, and called for every block of every
    ``pm.Minibatch``; a model without any is a single block. A block has as many rows as a
    batch. The last one starts early enough to be full, and its rows that an earlier block has
    counted weigh nothing. Rows are read where the model holds them: nothing is copied whole.

    Parameters
    ----------
    posterior : Posterior
        The density.
    backend : {"jax", "numba", "interpreter"}
        "interpreter" compiles nothing, for few calls.
    compile_kwargs : dict, optional
        For :func:`pymc.compile`.

    Raises
    ------
    NotImplementedError
        If a term on a minibatch is not a sum over rows, as for some potentials.
    """

    def __init__(
        self,
        posterior: Posterior,
        backend: str,
        compile_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        self.posterior = posterior
        log_density, base, weights = posterior.weighted()
        gradient = gradient_of(log_density, posterior.phi)
        self._inputs = [*posterior.phi, *posterior.scales, *posterior.others]
        rows = [row for group in posterior.rows for row in group]
        kwargs = {"mode": _MODES[backend], "on_unused_input": "ignore", **(compile_kwargs or {})}
        self._function = pm.compile(
            [*self._inputs, *posterior.data, *rows, base, *weights],
            [log_density, *gradient],
            **kwargs,
        )
        self._function.trust_input = True
        self._data: list[Any] = [_readable(array) for array in posterior.data.values()]
        if backend == "jax":
            import jax

            self._data = [jax.device_put(array) for array in self._data]
        self._sizes = [
            (len(arrays[0]), batch.batch_size)
            for batch, arrays in zip(posterior.minibatches, posterior.arrays, strict=True)
        ]
        self.n_blocks = max([-(-rows // size) for rows, size in self._sizes], default=1)

    def __call__(
        self,
        phi: Sequence[np.ndarray],
        scales: Sequence[np.ndarray] = (),
        others: Sequence[np.ndarray] = (),
    ) -> tuple[float, list[np.ndarray]]:
        """Evaluate at a position.

        Parameters
        ----------
        phi : list of ndarray
            The position.
        scales : list of ndarray
            Of the coordinates that have one, as in ``posterior.scales``.
        others : list of ndarray
            The value variables that are not sampled, as in ``posterior.others``.

        Returns
        -------
        log_density : float
        gradient : list of ndarray
            Of the log density, one array for each coordinate, in double precision.
        """
        point = [
            np.asarray(value, dtype=variable.dtype)
            for value, variable in zip([*phi, *scales, *others], self._inputs, strict=True)
        ]
        total = 0.0
        gradient = [np.zeros(np.shape(x)) for x in phi]
        for k in range(self.n_blocks):
            log_density, *parts = self._function(*point, *self._data, *self._block(k))
            total += float(log_density)
            gradient = [np.add(g, part) for g, part in zip(gradient, parts, strict=True)]
        return total, gradient

    def _block(self, k: int) -> list[np.ndarray]:
        """Return the rows of block number ``k``, and the weights that it takes."""
        floatX = pytensor.config.floatX
        rows, weights = [], []
        for (n, size), arrays in zip(self._sizes, self.posterior.arrays, strict=True):
            start = min(k * size, n - size)
            rows += [_readable(array[start : start + size]) for array in arrays]
            new = np.arange(start, start + size) >= k * size
            weights.append(np.where(new, size / n, 0.0).astype(floatX))
        return [*rows, np.asarray(float(k == 0), dtype=floatX), *weights]


def _readable(array: np.ndarray) -> np.ndarray:
    # Numba would compile anew for arrays that are read-only, strided or memory-mapped
    return np.require(array, array.dtype, ["C", "A", "W", "E"])

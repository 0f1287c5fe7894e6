"""The random numbers of an update: asked for in symbols, drawn by NumPy.

An update asks for noise (``noise.normal()``) and gets a symbolic input; the step then
draws the numbers of all updates of a draw with one call of a NumPy generator. So the
compiled transition is a deterministic map: both backends see the same noise, a chain's
state is pickled with NumPy's own generators, and nothing random is compiled. Where JAX
computes on a GPU, that generator gives keys, of which JAX makes the numbers there.
"""

from typing import Any

import numpy as np
import pytensor.tensor as pt

from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.backends.device_noise import drawn_on_device
from pymc_sgmcmc.backends.normals import fill_normal
from pymc_sgmcmc.backends.placing import aligned, on_processor
from pymc_sgmcmc.kernel.blocks import Blocks
from pymc_sgmcmc.kernel.ravel import Ravel

# For this many normals of a draw a generator five times as fast as NumPy's is worth the second that
# it takes to compile; those of a model in double precision alone seldom are
_MANY = {np.dtype("float32"): 2**15, np.dtype("float64"): 2**17}

# Beyond it float32 rounds cos(V) to a value <= 0
_LARGEST_ANGLE = np.pi / 2 - 1e-6


class Noise:
    """Source of the noise of one update, in blocks shaped as the position.

    Every call gives fresh, independent noise.

    Parameters
    ----------
    shapes : list of tuple of int
        The shape of each block of the position.
    dtypes : list of str
        Their dtypes.
    backend : str, default "numba"
        Which reads the numbers.
    """

    def __init__(
        self, shapes: list[tuple[int, ...]], dtypes: list[str], backend: str = "numba"
    ) -> None:
        self._backend = backend
        self._on_processor: bool | None = None
        self._ravel = Ravel(shapes, dtypes)
        self._dtype = str(np.result_type(*dtypes))
        self._buffers: list[np.ndarray] = []
        self.requests: dict[str, list[TensorVariable]] = {}

    def _request(self, kind: str) -> Blocks:
        # One flat vector for all blocks: a single call of the generator fills it
        flat = pt.tensor(kind, dtype=self._dtype, shape=(self._ravel.size,))
        self.requests.setdefault(kind, []).append(flat)
        return Blocks(self._ravel.split(flat))

    def normal(self) -> Blocks:
        """Return independent standard normal variables."""
        return self._request("normal")

    def uniform(self) -> Blocks:
        """Return independent variables, uniform on [0, 1)."""
        return self._request("uniform")

    def exponential(self) -> Blocks:
        """Return independent standard exponential variables."""
        return self._request("exponential")

    def stable(self, alpha: float) -> Blocks:
        r"""Return independent symmetric α-stable variables of scale one.

        Their characteristic function is :math:`\exp(-|\omega|^\alpha)`, so that α = 2
        gives normal variables of variance 2. The method is that of Chambers, Mallows
        and Stuck [1]_.

        Parameters
        ----------
        alpha : float
            Tail index, 1 < α ≤ 2.

        Returns
        -------
        Blocks

        References
        ----------
        .. [1] Chambers, Mallows, Stuck (1976). A method for simulating stable random
           variables. JASA 71, 340-344. https://doi.org/10.1080/01621459.1976.10480344
        """
        if alpha == 2:
            return self.normal() * np.sqrt(2.0)

        def chambers_mallows_stuck(u: TensorVariable, w: TensorVariable) -> TensorVariable:
            v = pt.clip((u - 0.5) * np.pi, -_LARGEST_ANGLE, _LARGEST_ANGLE)
            tail = pt.cos((1 - alpha) * v) / w
            return pt.sin(alpha * v) / pt.cos(v) ** (1 / alpha) * tail ** ((1 - alpha) / alpha)

        return self.uniform().map(chambers_mallows_stuck, self.exponential())

    def draw(self, rng: np.random.Generator, updates: int, draws: int = 1) -> list[Any]:
        """Draw the numbers of ``draws`` times ``updates`` updates, one array for each request.

        The arrays have the shape (draws, updates, numbers) and are overwritten by the next call. A
        draw's numbers do not depend on ``draws``. Where JAX runs on a GPU they are JAX's arrays.
        """
        kinds = [kind for kind, _ in self.flat_requests()]
        shape = draws, updates, self._ravel.size
        if self._on_processor is None:
            # Not before: it starts JAX
            self._on_processor = on_processor(self._backend)
        if not self._on_processor:
            return drawn_on_device(kinds, rng, draws, shape[1:], self._dtype)
        if [x.shape for x in self._buffers] != [shape] * len(kinds):
            self._buffers = [aligned(shape, self._dtype) for _ in kinds]
        for k in range(draws):
            for kind, buffer in zip(kinds, self._buffers, strict=True):
                FILL[kind](rng, buffer[k])
        return self._buffers

    def flat_requests(self) -> list[tuple[str, TensorVariable]]:
        """Every request with its kind, in the order in which ``draw`` serves them."""
        return [(kind, flat) for kind, flats in self.requests.items() for flat in flats]


def _fill_normal(rng: np.random.Generator, out: np.ndarray) -> np.ndarray:
    if out.size >= _MANY[out.dtype]:
        fill_normal(rng, out.reshape(-1))
    else:
        rng.standard_normal(out=out, dtype=out.dtype)
    return out


def _fill_uniform(rng: np.random.Generator, out: np.ndarray) -> np.ndarray:
    rng.random(out=out, dtype=out.dtype)
    return out


def _fill_exponential(rng: np.random.Generator, out: np.ndarray) -> np.ndarray:
    rng.standard_exponential(out=out, dtype=out.dtype)
    # The stable law divides by it, and float32's generator can return an exact zero
    np.maximum(out, np.finfo(out.dtype).tiny, out=out)
    return out


FILL = {"normal": _fill_normal, "uniform": _fill_uniform, "exponential": _fill_exponential}

"""Steps 2 and 3 of tuning: the location and the widths of the posterior's bulk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from pymc_sgmcmc.kernel.options import LARGEST_DENSE
from pymc_sgmcmc.tuning.conditional import Conditional
from pymc_sgmcmc.tuning.density import Density
from pymc_sgmcmc.tuning.many_parameters import gaussian_of_many
from pymc_sgmcmc.tuning.modes import best_mode
from pymc_sgmcmc.tuning.newton import LARGEST_NEWTON, newton, rows_of_a_search
from pymc_sgmcmc.tuning.parametrisation import Parametrisation
from pymc_sgmcmc.tuning.shared_index import fitted_in_blocks
from pymc_sgmcmc.tuning.surface import Surface, TuningError
from pymc_sgmcmc.tuning.variational import diagonal_gaussian
from pymc_sgmcmc.tuning.whiten import bulk_of_full_data, bulk_of_minibatches, inverse_root

__all__ = ["find_bulk"]

# Rounds that move a start by the likelihood, steps of a round, and the move of scales that ends
# them; rounds that fit the scales of masses
_MOST_LED, _STEPS_LED, _LITTLE, _MOST_FITS = 8, 4, 0.3, 4


def find_bulk(
    surface: Surface,
    start: np.ndarray,
    density: Density,
    scale: str | np.ndarray | None,
    rng: np.random.Generator,
    report: Callable[[str], None],
    writing: Parametrisation | None = None,
    *,
    permutable: bool = False,
    others: Sequence[np.ndarray] = (),
) -> tuple[np.ndarray, np.ndarray, bool]:
    """Return centre m, root L of shape (d, d) or (d,), and whether a funnel's neck was seen.

    ``permutable`` posteriors have modes by permutation, and in many dimensions a diagonal L. From
    ``others``, more starts, Newton steps look for modes of more mass.
    """
    fit = gaussian_of_many if permutable else fitted_in_blocks
    search = _Search(surface, density.rescale, rng, report, writing, others, fit)
    if permutable and len(start) > LARGEST_NEWTON:
        return *search.diagonal(start), False
    if len(start) <= LARGEST_DENSE:
        begun_at = density.scales
        try:
            return search.dense(start.copy(), scale)
        except TuningError as error:
            # As for neural networks: no Gaussian is near, but each coordinate has a width
            failed = error
            if writing is not None:
                writing.undo()
            density.set_scales(begun_at)
    try:
        return *search.diagonal(start), False
    except TuningError:
        if len(start) <= LARGEST_DENSE:
            raise failed from None
        raise


@dataclass(frozen=True)
class _Search:
    """Searches for the bulk from a start; see :func:`find_bulk`."""

    surface: Surface
    rescale: Callable[[np.ndarray], np.ndarray]
    rng: np.random.Generator
    report: Callable[[str], None]
    writing: Parametrisation | None
    others: Sequence[np.ndarray]
    fit: Callable[..., tuple[np.ndarray, np.ndarray]]

    def dense(
        self, start: np.ndarray, scale: str | np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray, bool]:
        """Find the bulk with a full L."""
        centre, root, collapses, start = self._rough(start)
        whitened = self._finds_modes(len(start))
        if whitened:
            if (rewritten := self._rewritten(centre, root, at_mode=True)) is not None:
                centre, root = rewritten
                start, collapses = centre, False
            centre, root = self._whitened(centre, root, start)
        while (rewritten := self._rewritten(centre, root)) is not None:
            centre, root = rewritten
            start, collapses = centre, False
            if whitened:
                centre, root = self._whitened(centre, root, start)
        if not whitened:
            centre, root = self._whitened(centre, root, start)
        if isinstance(scale, str) and scale == "diagonal":
            root = np.sqrt(np.sum(root**2, axis=1))
        return centre, root, collapses

    def diagonal(self, start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Find centre and sds of independent normals."""
        self.report("rough centre")
        # A neural network's U may fall for long, and the chain finds its modes
        patient = self.writing is not None
        centre, root = self._fitted(partial(self.fit, patient=patient), start)
        while (rewritten := self._rewritten(centre, root)) is not None:
            self.report("rough centre")
            fit = partial(self.fit, known=rewritten[1])
            centre, root = self._fitted(fit, rewritten[0])
        return centre, root

    def _finds_modes(self, dimension: int) -> bool:
        """Return whether Newton steps find the rough centre, not a fit of normals."""
        whole = dimension <= LARGEST_DENSE and not self.surface.batch_size
        return dimension <= LARGEST_NEWTON or whole

    def _whitened(
        self, centre: np.ndarray, root: np.ndarray, start: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Move a rough centre and L to the bulk; L is dense afterwards."""
        if root.ndim == 1:
            root = np.diag(root)
        self.report("widths and correlations")
        if self.surface.batch_size:
            return bulk_of_minibatches(self.surface, centre, root, self.rng)
        try:
            centre, root, astray = bulk_of_full_data(self.surface, centre, root, self.rng)
        except TuningError:
            astray = True
        if astray:
            # Newton steps ended in a neck or at a saddle, whose curvature gives no widths
            self.report("rough centre")
            centre, sd = self._fitted(diagonal_gaussian, start)
            self.report("widths and correlations")
            centre, root, _ = bulk_of_full_data(self.surface, centre, np.diag(sd), self.rng)
        return centre, root

    def _rough(self, start: np.ndarray) -> tuple[np.ndarray, np.ndarray, bool, np.ndarray]:
        """Return a centre, L or its diagonal from the curvature there, collapses and the start."""
        surface = self.surface
        self.report("rough centre")
        if not self._finds_modes(len(start)):
            centre, sd = self._fitted(diagonal_gaussian, start)
            return centre, sd, False, start
        rows = rows_of_a_search(surface, self.rng)
        centre, start, collapses = self._mode(start, rows)
        centre, start = self.rescale(np.stack([centre, start]))
        _, hessian, _ = newton(surface, centre, rows, most_steps=0)
        for _ in range(_MOST_FITS):
            # Scales of masses follow from curvatures; along a saddle there is no width
            sd = np.maximum(np.diag(hessian), 1e-12 * np.abs(hessian).max()) ** -0.5
            there, _, _, start_there = self.rescale(
                np.stack([centre, centre + sd, centre - sd, start])
            )
            if np.abs(there - centre).max() < _LITTLE:
                break
            start = start_there
            centre, hessian, collapses = newton(surface, there, rows)
        return centre, inverse_root(hessian, surface.circular), collapses, start

    def _mode(
        self, start: np.ndarray, rows: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray, bool]:
        """Return a rough mode, the start of the path to it, and whether it ends in a neck.

        Scales, which would fall to 0 far from the data, move last and in coordinates fitted to the
        likelihood at the present scales: in others the path follows a curved valley.
        """
        surface, writing, free = self.surface, self.writing, self.surface.unbounded
        fitted = partial(self._fitted_to_scales, rows=rows)
        if writing is None or not 0 < free.sum() < len(start):
            return best_mode(surface, [start, *self.others], rows, self.rng, begin=fitted)
        begun = led = fitted(start)
        for _ in range(_MOST_LED):
            _, hessian, _ = newton(surface, led, rows, most_steps=0)
            hessian[np.ix_(free, ~free)] = hessian[np.ix_(~free, free)] = 0
            root = inverse_root(hessian, surface.circular)
            if (rewritten := writing(led, root, at_mode=True)) is None:
                break
            writing.move()
            before = rewritten[0]
            led = newton(surface, before, rows, most_steps=_STEPS_LED, rough=True)[0]
            if np.abs(led - before)[~free].max() < _LITTLE:
                break
            led = fitted(led)
        centre, _, collapses = newton(surface, led, rows)
        if collapses and led is not begun:
            # As for products, where the data determine a factor only given the others
            writing.undo()
            led = begun
            centre, _, collapses = newton(surface, led, rows)
        return centre, led, collapses

    def _fitted_to_scales(self, start: np.ndarray, rows: np.ndarray | None) -> np.ndarray:
        """Move all variables but scales to a rough mode."""
        free = self.surface.unbounded
        if not 0 < free.sum() < len(start):
            return start
        along = Conditional(self.surface, start, free)
        return along.whole(newton(along, start[free], rows, rough=True)[0][None])[0]

    def _rewritten(
        self, centre: np.ndarray, root: np.ndarray, *, at_mode: bool = False
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """Return the bulk in other coordinates, or None to keep the present ones."""
        return None if self.writing is None else self.writing(centre, root, at_mode=at_mode)

    def _fitted(
        self, fit: Callable[..., tuple[np.ndarray, np.ndarray]], start: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and sds of independent normals, in coordinates of scales fitted to them."""
        centre, sd = fit(self.surface, start, self.rng)
        centre, above, below = self.rescale(np.stack([centre, centre + sd, centre - sd]))
        return centre, np.minimum(np.abs(above - below) / 2, self.surface.widest)

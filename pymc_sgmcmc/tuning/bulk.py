"""Steps 2 and 3 of tuning: the location and the widths of the posterior's bulk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from pymc_sgmcmc.model.recognise import LARGEST_DENSE
from pymc_sgmcmc.tuning.conditional import Conditional
from pymc_sgmcmc.tuning.curvature import LEAST_CURVATURE
from pymc_sgmcmc.tuning.modes import LARGEST_NEWTON, best_mode, newton, rows_of_a_search
from pymc_sgmcmc.tuning.normal_fit import diagonal_gaussian, gaussian_of_many
from pymc_sgmcmc.tuning.parametrisation import SECANT
from pymc_sgmcmc.tuning.shared_index import fitted_in_blocks
from pymc_sgmcmc.tuning.start import Beginning
from pymc_sgmcmc.tuning.surface import Flat, NoGaussianError, Rng, Root, Rows, TuningError
from pymc_sgmcmc.tuning.whiten import bulk_of_full_data, bulk_of_minibatches, inverse_root, sds_of

# Rounds that move a start by the likelihood, Newton steps of a round, and the move of scales that
# ends them; rounds that fit the scales of masses
_MOST_ROUNDS, _STEPS, _LITTLE, _MOST_FITS = 8, 4, 0.3, 4


def find_bulk(begin: Beginning, rng: Rng, report: Callable[[str], None]) -> tuple[Flat, Root, bool]:
    """Return centre m, root L of shape (d, d) or (d,), and whether the descent to it collapses.

    Where no fit succeeds, raises TuningError, and NoGaussianError of exchangeable units.
    """
    start, density, search = begin.start, begin.density, _Search(begin, rng, report)
    failed: Exception | None = None
    if len(start) <= (LARGEST_NEWTON if begin.exchangeable else LARGEST_DENSE):
        scales = density.scales
        try:
            return search.dense(start.copy())
        except (TuningError, np.linalg.LinAlgError) as error:
            # As for neural networks: no Gaussian is near, but each coordinate has a width
            failed = error
            if begin.parametrisation is not None:
                begin.parametrisation.undo()
            density.set_scales(scales)
    try:
        return *search.diagonal(start), False
    except TuningError as error:
        if begin.exchangeable:
            raise NoGaussianError from error
        raise (failed or error) from None


@dataclass
class _Reached:
    """What a search has reached, in the present coordinates."""

    centre: Flat
    root: Root
    start: Flat  # where the path to the centre began
    collapses: bool = False  # whether that path went on to less mass


@dataclass(frozen=True)
class _Search:
    """Searches for the bulk from a start; see :func:`find_bulk`."""

    begin: Beginning
    rng: Rng
    report: Callable[[str], None]

    def dense(self, start: Flat) -> tuple[Flat, Root, bool]:
        """Find the bulk with a full L."""
        by_newton = len(start) <= LARGEST_NEWTON or not self.begin.surface.batch_size
        bulk = self._rough_mode(start) if by_newton else self._rough_normals(start)
        if by_newton:
            self._rewrite(bulk, at_mode=True)
            self._whiten(bulk)
            if self._straighten(bulk):
                self._whiten(bulk)
        while self._rewrite(bulk):
            if by_newton:
                self._whiten(bulk)
        if not by_newton:
            self._whiten(bulk)
        return bulk.centre, bulk.root, bulk.collapses

    def diagonal(self, start: Flat) -> tuple[Flat, Flat]:
        """Find centre and sds of independent normals."""
        fit = gaussian_of_many if self.begin.exchangeable else fitted_in_blocks
        # Only hierarchies: a network's U may fall for long, and its chain finds the modes
        patient = self.begin.parametrisation is not None
        bulk = self._rough_normals(start, partial(fit, patient=patient))
        while self._rewrite(bulk):
            bulk = self._rough_normals(bulk.centre, partial(fit, known=sds_of(bulk.root)))
        return bulk.centre, bulk.root

    def _rewrite(self, bulk: _Reached, *, at_mode: bool = False) -> bool:
        """Express the bulk in better coordinates; return whether there are any."""
        parametrisation = self.begin.parametrisation
        if parametrisation is None:
            return False
        rewritten = parametrisation(bulk.centre, bulk.root, at_mode=at_mode)
        if rewritten is None:
            return False
        bulk.centre, bulk.root = rewritten
        bulk.start, bulk.collapses = bulk.centre, False
        return True

    def _straighten(self, bulk: _Reached) -> bool:
        """Refit the scales of half-lines whose bulk is far above the mode; return whether any are.

        There a map that is log-like at the mode is linear, and the bulk skewed.
        """
        density = self.begin.density
        if not density.is_bent(bulk.centre):
            return False
        centre, sd, moves = bulk.centre, sds_of(bulk.root), SECANT * bulk.root.T
        points = np.stack([centre, centre + sd, centre - sd, bulk.start])
        points = np.concatenate([points, centre + moves, centre - moves])
        (bulk.centre, _, _, bulk.start), above, below = np.split(
            density.rescale(points), [4, 4 + len(moves)]
        )
        bulk.root = (above - below).T / (2 * SECANT)
        return True

    def _whiten(self, bulk: _Reached) -> None:
        """Move a rough centre and L to the bulk; L is dense afterwards."""
        surface, rng = self.begin.surface, self.rng
        root = np.diag(bulk.root) if bulk.root.ndim == 1 else bulk.root
        self.report("measuring the posterior's widths and correlations")
        if surface.batch_size:
            bulk.centre, bulk.root = bulk_of_minibatches(surface, bulk.centre, root, rng)
            return
        try:
            bulk.centre, bulk.root, unsettled = bulk_of_full_data(surface, bulk.centre, root, rng)
        except TuningError:
            unsettled = True
        if unsettled:
            # Newton steps ended in a funnel's neck or at a saddle, whose curvature gives no widths
            again = self._rough_normals(bulk.start)
            bulk.start = again.start
            self.report("measuring the posterior's widths and correlations")
            bulk.centre, bulk.root, _ = bulk_of_full_data(
                surface, again.centre, np.diag(again.root), rng
            )

    def _rough_normals(
        self, start: Flat, fit: Callable[..., tuple[Flat, Flat]] | None = None
    ) -> _Reached:
        """Return mean and sds of independent normals, in coordinates of scales fitted to them."""
        self.report("searching for the posterior's centre")
        surface = self.begin.surface
        centre, sd = (fit or diagonal_gaussian)(surface, start, self.rng)
        points = np.stack([centre, centre + sd, centre - sd, start])
        centre, above, below, start = self.begin.density.rescale(points)
        return _Reached(centre, np.minimum(np.abs(above - below) / 2, surface.widest), start)

    def _rough_mode(self, start: Flat) -> _Reached:
        """Return a mode and L from the curvature there."""
        surface, density = self.begin.surface, self.begin.density
        self.report("searching for the posterior's centre")
        rows = rows_of_a_search(surface, self.rng)
        centre, start, collapses = self._mode(start, rows)
        centre, start = density.rescale(np.stack([centre, start]))
        hessian = newton(surface, centre, rows, most_steps=0).hessian
        for _ in range(_MOST_FITS):
            # Scales of masses follow from curvatures; along a saddle there is no width
            diagonal, least = np.diag(hessian), LEAST_CURVATURE * np.abs(hessian).max()
            sd = np.where(diagonal > 0, diagonal, least) ** -0.5
            points = np.stack([centre, centre + sd, centre - sd, start])
            before = centre
            centre, _, _, start = density.rescale(points)
            if np.abs(centre - before).max() < _LITTLE:
                break
            centre, hessian, collapses = newton(surface, centre, rows)
        return _Reached(centre, inverse_root(hessian, surface.circular), start, collapses)

    def _mode(self, start: Flat, rows: Rows | None) -> tuple[Flat, Flat, bool]:
        """Return a rough mode, the start of the path to it, and whether it went on to less mass.

        Scales, which would fall to 0 far from the data, move last and in coordinates fitted to the
        likelihood at the present scales: in others the path follows a curved valley.
        """
        surface, parametrisation = self.begin.surface, self.begin.parametrisation
        free, fitted = surface.unbounded, partial(self._fitted_to_scales, rows=rows)
        if parametrisation is None or not 0 < free.sum() < len(start):
            starts = [start, *self.begin.further_starts]
            return best_mode(surface, starts, rows, self.rng, begin=fitted)
        begun = at = fitted(start)
        for _ in range(_MOST_ROUNDS):
            hessian = newton(surface, at, rows, most_steps=0).hessian
            hessian[np.ix_(free, ~free)] = hessian[np.ix_(~free, free)] = 0
            rewritten = parametrisation(at, inverse_root(hessian, surface.circular), at_mode=True)
            if rewritten is None:
                break
            parametrisation.repeat_here()
            before = rewritten[0]
            at = newton(surface, before, rows, most_steps=_STEPS, rough=True).centre
            if np.abs(at - before)[~free].max() < _LITTLE:
                break
            at = fitted(at)
        centre, _, collapses = newton(surface, at, rows)
        if collapses and at is not begun:
            # As for products, where the data determine a factor only given the others
            parametrisation.undo()
            at = begun
            centre, _, collapses = newton(surface, at, rows)
        return centre, at, collapses

    def _fitted_to_scales(self, start: Flat, rows: Rows | None) -> Flat:
        """Move all variables but scales to a rough mode."""
        surface, free = self.begin.surface, self.begin.surface.unbounded
        if not 0 < free.sum() < len(start):
            return start
        along = Conditional(surface, start, free)
        return along.whole(newton(along, start[free], rows, rough=True).centre[None])[0]

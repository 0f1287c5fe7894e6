"""What the draws will cost, told before the first of them."""

from __future__ import annotations

__all__ = ["told_cost"]

# Parameters from which on PyMC's checks of two thousand draws after sampling take minutes
_MANY_TO_CHECK = 200_000


def told_cost(
    draws: int, thin: int, batches: int, *, anchored: bool, blocks: int, dimension: int
) -> str:
    """Return a sentence on the cost of a chain's draws.

    Parameters
    ----------
    draws : int
        Of the chain, those of the burn-in included.
    thin, batches : int
        Updates of a draw, and batches averaged for an update.
    anchored : bool
        Whether the gradient of each batch is computed at an anchor too.
    blocks : int
        Batches that make up the data; 1 where there are none.
    dimension : int
        Number of parameters.
    """
    updates = draws * thin
    if blocks > 1:
        passes = updates * batches * (1 + anchored) / blocks
        several = "es" if batches > 1 else ""
        told = (
            f"The chain will take {updates:,} updates of {batches} batch{several}: "
            f"{passes:,.3g} passes over the data."
        )
    else:
        told = f"The chain will take {updates:,} updates."
    if dimension >= _MANY_TO_CHECK:
        told += (
            f" PyMC's checks of {dimension:,} parameters then take minutes; "
            "compute_convergence_checks=False leaves them out."
        )
    return told

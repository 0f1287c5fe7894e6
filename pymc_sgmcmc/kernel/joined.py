"""Which of the batches that are averaged are taken as one."""

from __future__ import annotations

__all__ = ["LARGEST_JOINED", "blocks_to_join"]

# Most rows of joined blocks: enough to outweigh the fixed cost of a batch, and few enough for all
# that is computed from them to stay in a processor's cache
LARGEST_JOINED = 4096

# Largest relative variance of the sizes of groups: the last one may be smaller
_LARGEST_UNEVENNESS = 0.02


def blocks_to_join(batches: int, blocks: int, batch_size: int) -> int:
    """Return how many neighbouring blocks of B rows one gradient takes at once, a divisor of K.

    Averaging K disjoint batches is the gradient of one batch of K B rows, at less cost.
    """
    for count in range(batches, 1, -1):
        if batches % count or count * batch_size > LARGEST_JOINED:
            continue
        groups = -(-blocks // count)
        last = blocks - (groups - 1) * count
        squares = (groups - 1) * count**2 + last**2
        if groups * squares / blocks**2 - 1 < _LARGEST_UNEVENNESS:
            return count
    return 1

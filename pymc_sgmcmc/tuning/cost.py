"""The cost of the draws, logged before the first of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

__all__ = ["spelled", "spoken_of", "told_cost", "told_time", "too_dear"]

# Parameters above which PyMC's checks of two thousand draws take minutes
_MANY_TO_CHECK = 200_000

# Seconds between two progress checks, and seconds of draws that take long; larger units
_LOOK, _LONG = 5.0, 300.0
_UNITS = (1, "s"), (60, "minutes"), (3600, "hours")


@contextmanager
def spoken_of(say: Callable[[], None]) -> Iterator[None]:
    """Call ``say`` every few seconds in a thread, during work that cannot be interrupted."""
    done = Event()

    def speak() -> None:
        while not done.wait(_LOOK):
            say()

    thread = Thread(target=speak, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def too_dear(thin: int, needed: int, draws: int, seconds: float, passes: float) -> str:
    """Return a warning of the cost of ``needed`` updates a draw, with cheaper alternatives."""
    rows = "all rows in place of batches, " if passes < 1 else ""
    told = spelled(draws * thin * seconds)
    return (
        f"a draw would need {needed:,} updates or more, {needed * passes:,.3g} passes over the "
        f"data, and a chain of {draws:,} draws {spelled(draws * needed * seconds)}. That is too "
        f"much: draws have {thin} updates, {told} in all, and depend on each other. Cheaper may be "
        f"{rows}NUTS (pm.sample without step=), or a model with fewer components or parameters; "
        f"thin={needed} takes that time"
    )


def spelled(seconds: float) -> str:
    """Return a time in words."""
    unit, name = max((u, n) for u, n in _UNITS if u == 1 or seconds >= 1.5 * u)
    return f"about {seconds / unit:.2g} {name}"


def told_cost(
    draws: int, thin: int, batches: int, *,
    anchored: bool, blocks: int, dimension: int, all_rows: bool = False,
) -> str:  # fmt: skip
    """Return a message on the cost of a chain's draws, burn-in included."""
    told = f"{thin} updates a draw"
    if blocks > 1:
        passes = draws * thin * batches * (1 + anchored) / blocks
        several = "es" if batches > 1 else ""
        told += (
            f", {batches} batch{several} an update; {draws:,} draws are "
            f"{float(f'{passes:.3g}'):,.15g} passes over the data"
        )
    told += "."
    if all_rows:
        told += (
            " Updates take all rows: batches with as little noise would be a third of them or "
            "more. Without batches (batch_size=None, or no pm.Minibatch) it takes less time."
        )
    if dimension >= _MANY_TO_CHECK:
        told += (
            f" PyMC's checks of {dimension:,} parameters take minutes; "
            "compute_convergence_checks=False leaves them out."
        )
    return told


def told_time(seconds: float) -> str:
    """Return a message on how long a chain's draws take, if that is long."""
    told = f" The draws take {spelled(seconds)}." if seconds >= _LOOK else ""
    if seconds >= _LONG:
        told += " A smaller thin= costs as much less, and leaves draws more alike."
    return told

"""Registration with PyMC."""

from __future__ import annotations

from typing import Any

from pymc.step_methods import STEP_METHODS
from pymc.step_methods.compound import BlockedStep


def register(*methods: Any) -> None:
    """Add step methods to PyMC's list, in place and once.

    Their competence is never above ``COMPATIBLE``, so that ``pm.sample()`` picks the same
    step methods as before.

    Parameters
    ----------
    *methods : type
        Step methods, such as subclasses of :class:`~pymc_sgmcmc.SGMCMCStep`.

    Raises
    ------
    TypeError
        If something is no class of step methods; then none is added.
    """
    for method in methods:
        if not (isinstance(method, type) and issubclass(method, BlockedStep)):
            raise TypeError(f"register takes classes such as sg.SGLD, got {method!r:.80}.")
    for method in methods:
        if method not in STEP_METHODS:
            STEP_METHODS.append(method)

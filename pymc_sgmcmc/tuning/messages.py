"""What users read of tuning: its warnings, by their codes, and the log's lines of what draws cost.

Errors stand where they are raised; ``failure.py`` has the cures that they share.
"""

from __future__ import annotations

from typing import Any

Warned = tuple[str, dict[str, Any]]
"""The code of a warning, and the numbers in its text."""

# Parameters above which PyMC's checks of two thousand draws take minutes
_MANY_TO_CHECK = 200_000

# Seconds of draws that are shown, seconds that are long, and larger units
_SHOWN, _LONG = 5.0, 300.0
_UNITS = (1, "s"), (60, "minutes"), (3600, "hours")

_FAR = (
    "the chain was far from the Gaussian that had been fitted to the posterior: up to {sd:.1f} "
    "times as wide, with its mean up to {mean:.1f} sds off the centre. Likely causes are heavy "
    "tails, a funnel or several modes. "
)

_TEXTS = {
    "no Gaussian": (
        "no Gaussian was found near the posterior. It has a mode for each permutation of units, as "
        "that of a neural network, and each chain was tuned where it was. Trust predictions on "
        "which chains agree; marginals of single parameters, and their R-hat, say little"
    ),
    "far": _FAR + "Compare the result with that of NUTS, or of another parametrisation",
    "far, of many": (
        _FAR + "Compare what the chains predict: they may agree on it, if not on single parameters"
    ),
    "diverging": (
        "updates diverged at every step size that was tried. The draws cannot be trusted: pass a "
        "smaller step_size if you set it, write the model non-centred, take tighter priors, or use "
        "NUTS"
    ),
    "absurd gradients": (
        "gradients were not finite, or extremely large, at some of the chain's positions. The "
        "draws cannot be trusted: leave out rows of the data that no parameter can explain, take "
        "tighter priors, or use NUTS"
    ),
    "temperature": (
        "some sds were wrong by about {wrong:.0%}: the mean of position times gradient, the "
        "configurational temperature, was {worst:.2f} and has to be 1. Pass a smaller "
        "step_size if you set it, write the model non-centred, use NUTS, or, where there are "
        "batches, take a larger batch_size"
    ),
    "jumps": (
        "the density was seen to jump along {along}, {size}, where its gradient shows nothing. "
        "Steps follow gradients: the draws are those of a density without the jump. Sample such "
        "variables by another step, step=[sg.CoRVSGLD([...]), pm.Slice([...])], or write a smooth "
        "function, such as a steep pm.math.sigmoid, or a bounded prior, in place of a comparison, "
        "a rounding or a potential of -inf"
    ),
    "slow": (
        "the chain mixes slowly: along some direction {effective:.0f} effective draws in {draws}. "
        "Raise thin, or write the model non-centred"
    ),
    "slow variables": (
        "some variables mix slowly: {variables}. Do not trust the marginals of such elements; "
        "predictions that average over many of them may be right. Raise thin, write an intercept "
        "as the mean of its effects, or give the variables tighter priors"
    ),
    "costly": (
        "a draw would need {needed:,} updates or more to depend little on the one before it. That "
        "is {passes:,.3g} passes over the data, and {needed_time} for 1,000 draws. That is more "
        "than tuning spends by itself: draws have {thin} updates, {time} for 1,000, and depend "
        "on each other. Cheaper may be {rows}NUTS (pm.sample without step=), or a model with fewer "
        "components or parameters; thin={needed} takes the longer time"
    ),
    "improper": "{text}",
}


def text_of(warning: Warned) -> str:
    """Return a warning's text, without a full stop."""
    code, values = warning
    return _TEXTS[code].format(**values)


def costly(thin: int, needed: int, seconds: float, passes: float) -> Warned:
    """Return a warning that ``needed`` updates for each draw would cost too much.

    An update takes these seconds and passes over the data.
    """
    return "costly", {
        "needed": needed,
        "passes": needed * passes,
        "needed_time": in_words(1000 * needed * seconds),
        "thin": thin,
        "time": in_words(1000 * thin * seconds),
        "rows": "all rows in place of batches, " if passes < 1 else "",
    }


def in_words(seconds: float) -> str:
    """Return a time in words."""
    unit, name = max((u, n) for u, n in _UNITS if u == 1 or seconds >= 1.5 * u)
    return f"about {seconds / unit:.2g} {name}"


def cost_of_draws(
    draws: int, updates: int, batches: int, *,
    anchored: bool, blocks: int, dimension: int, all_rows: bool = False, refresh: int | None = None,
) -> str:  # fmt: skip
    """Return a sentence on the cost of a chain's draws of so many updates, burn-in included.

    An anchor that moves every ``refresh`` updates, at the beginning of a draw, takes a pass then.
    """
    text = f"{updates} updates a draw"
    if blocks > 1:
        passes = draws * updates * batches * (1 + anchored) / blocks
        if refresh:
            passes += draws * updates / max(refresh, updates)
        several = "es" if batches > 1 else ""
        text += (
            f", {batches} batch{several} an update; {draws:,} draws are "
            f"{float(f'{passes:.3g}'):,.15g} passes over the data"
        )
    text += "."
    if all_rows:
        text += (
            " Updates take all rows. Without batches (batch_size=None, or no pm.Minibatch) that "
            "takes less time."
        )
    if dimension >= _MANY_TO_CHECK:
        text += (
            f" PyMC's checks of {dimension:,} parameters take minutes; "
            "compute_convergence_checks=False leaves them out."
        )
    return text


def time_of_draws(seconds: float) -> str:
    """Return a sentence on how long a chain's draws take, if that is long."""
    text = f" The draws take {in_words(seconds)}." if seconds >= _SHOWN else ""
    if seconds >= _LONG:
        text += " A smaller thin= takes as much less, and successive draws are then more alike."
    return text

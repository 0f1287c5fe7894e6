"""What three kinds of samplers tell tuning of themselves, and rules of trials."""

import pymc as pm

import pymc_sgmcmc as sg

from pymc_sgmcmc.tuning.check import Rules

with pm.Model() as _model:
    pm.Normal("x")
POLICIES = {m.name: m(model=_model).policy() for m in (sg.CoRVSGLD, sg.MSGNHT, sg.SGLD)}
LM, THERMOSTAT, EULER = POLICIES.values()

_OF_A_USUAL_CHAIN = {
    "fixed_step": False, "fixed_thin": False, "most_thin": 2560, "draws": 500,
    "most_updates": 10**12, "about_mean": False, "collapses": False, "exchangeable": False,
    "all_seen": False,
}  # fmt: skip


def rules_of(policy, thin, **other):
    """Return rules of trials, those of a usual chain but for some."""
    return Rules(policy, thin, **{**_OF_A_USUAL_CHAIN, **other})

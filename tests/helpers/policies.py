"""What three kinds of samplers tell tuning of themselves."""

import pymc as pm

import pymc_sgmcmc as sg

with pm.Model() as _model:
    pm.Normal("x")
POLICIES = {m.name: m(model=_model).policy() for m in (sg.CoRVSGLD, sg.MSGNHT, sg.SGLD)}
LM, THERMOSTAT, EULER = POLICIES.values()

"""A tuned chain repeats bit for bit."""

import os

import numpy as np
import pytest

import pymc_sgmcmc as sg

from helpers.conjugate import regression
from helpers.sampling import run
from helpers.steps import assert_goes_on, take
from helpers.subprocesses import run_python


@pytest.mark.slow
def test_same_seed_same_bits_with_tuning():
    model, _ = regression()
    step = sg.CoRVSGLD(model=model, backend="jax")
    one, two = (run(step, draws=20, seed=1).posterior for _ in range(2))
    other = run(step, draws=20, seed=2, chains=1).posterior
    for name in ("slopes", "precision"):
        assert one[name].values.tobytes() == two[name].values.tobytes()
        assert not np.any(one[name].values[:1] == other[name].values)
        # Chains are tuned each from its own start
        assert not np.any(one[name].values[0] == one[name].values[1])


PROGRAM = """
import hashlib, logging, warnings

import numpy as np
import pymc as pm

import pymc_sgmcmc as sg

logging.disable(logging.CRITICAL)
warnings.simplefilter("ignore")
y = np.random.default_rng(0).normal(1, 0.5, size=400)
with pm.Model() as model:
    batch = pm.Minibatch(y, batch_size=40)
    mu = pm.Normal("mu", 0, 10)
    sigma = pm.HalfNormal("sigma", 1)
    pm.Normal("y", mu, sigma, observed=batch, total_size=400)
for options in {"cores": 2, "mp_ctx": "fork"}, {"cores": 1}:
    result = pm.sample(
        step=sg.CoRVSGLD(backend="jax", model=model), model=model, draws=20, tune=5,
        chains=2, random_seed=1, progressbar=False, compute_convergence_checks=False, **options,
    )
    bits = b"".join(result.posterior[name].values.tobytes() for name in ("mu", "sigma"))
    print(hashlib.sha256(bits).hexdigest(), result.posterior.sizes["chain"])
"""


@pytest.mark.slow
def test_one_core_and_two_give_the_same_bits_with_tuning(tmp_path):
    # In a process of its own, two cores first: a JAX that runs could not be forked. For numba
    # tests/test_processes.py compares kinds of processes
    flags = os.environ.get("PYTENSOR_FLAGS", "")
    own_cache = {"PYTENSOR_FLAGS": f"{flags},base_compiledir={tmp_path}".strip(",")}
    done = run_python(PROGRAM, timeout=900, env={**os.environ, **own_cache})
    assert done.returncode == 0, done.stderr
    one, other = done.stdout.splitlines()
    assert one == other
    assert one.endswith(" 2")


@pytest.mark.parametrize(
    ("method", "gradient"),
    [
        pytest.param(sg.CoRVSGLD, "auto", id="CoRVSGLD"),
        pytest.param(sg.CoRVSGLD, sg.SVRG(refresh=50), id="SVRG"),
        pytest.param(sg.MSGNHT, "auto", id="MSGNHT"),
    ],
)
@pytest.mark.slow
def test_state_of_a_tuned_chain_restores_bit_for_bit(method, gradient):
    model, _ = regression()
    step = method(model=model, gradient=gradient, backend="jax")
    step.setup_chain(np.random.default_rng(3), 2, 50)
    point, _ = take(step, model.initial_point(), draws=5)

    def make():
        made = method(model=model, gradient=gradient, backend="jax")
        # What is compiled has no state
        made._engine = step._engine
        return made

    fresh = assert_goes_on(step, point, make, draws=6)
    assert fresh.chain.settings == step.chain.settings

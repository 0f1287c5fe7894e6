"""A likelihood known by an estimate of its gradient alone, on a model whose answer is known."""

from functools import partial

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

from pymc.model_graph import ModelGraph

import pymc_sgmcmc as sg

from helpers.sampling import QUIET
from helpers.steps import start
from helpers.z_scores import STANDARD_ERRORS
from pymc_sgmcmc.testing import UNTUNED

ROWS = 20


# Each kind of noise with mean 0 and variance 1
KINDS = {
    "normal": lambda noise, shape: noise.normal(shape),
    "uniform": lambda noise, shape: (noise.uniform(shape) - 0.5) * np.sqrt(12),
    "exponential": lambda noise, shape: noise.exponential(shape) - 1,
}


def of_latent(theta, y, noise, kind="normal"):
    """∇ log p(y | θ) of y ~ N(z, 1), z ~ N(θ, 1), with z drawn given y: shape of θ.

    Only the mean and the variance of the draw matter to what the test sees.
    """
    z = (y + theta) / 2 + KINDS[kind](noise, y.type.shape) * np.sqrt(0.5)
    return (z - theta).sum(axis=0)


@pytest.mark.parametrize(
    ("method", "batch"),
    [
        (sg.CoRVSGLD, None),
        (sg.CoRVSGLD, 4),
        pytest.param(sg.MSGNHT, None, marks=pytest.mark.slow),
        pytest.param(sg.SGLD, 4, marks=pytest.mark.slow),
    ],
)
def test_latent_variables_that_each_update_draws(method, batch):
    sampled_latent_variables(method, batch, "jax")


@pytest.mark.slow
def test_latent_variables_in_numba():
    sampled_latent_variables(sg.CoRVSGLD, 4, "numba")


@pytest.mark.parametrize(
    ("kind", "backend"),
    [
        ("exponential", "jax"),
        pytest.param("uniform", "jax", marks=pytest.mark.slow),
        *(pytest.param(k, "numba", marks=pytest.mark.slow) for k in ("uniform", "exponential")),
    ],
)
def test_latent_variables_from_other_noise(kind, backend):
    sampled_latent_variables(sg.CoRVSGLD, None, backend, kind)


def sampled_latent_variables(method, batch, backend, kind="normal"):
    replicates, h = 500, 0.02
    data = np.random.default_rng(0).normal(1.0, np.sqrt(2), size=(ROWS, replicates))
    with pm.Model():
        theta = pm.Flat("theta", shape=replicates, initval=data.mean(axis=0))
        y = data if batch is None else pm.Minibatch(data, batch_size=batch)
        size = None if batch is None else ROWS
        estimate = partial(of_latent, kind=kind)
        sg.GradientPotential("y", estimate, [theta], [y], total_size=size)
        sd = np.sqrt(2 / ROWS)
        step = method(
            step_size=h if method is not sg.MSGNHT else 0.1, thin=100, scale={"theta": sd},
            backend=backend,
        )  # fmt: skip
        result = pm.sample(step=step, draws=50, tune=10, chains=1, random_seed=1, **QUIET)
    draws = (result.posterior["theta"].values[0] - data.mean(axis=0)) / sd
    means, squares = draws.mean(axis=0), (draws**2).mean(axis=0)
    assert abs(means.mean()) < STANDARD_ERRORS * means.std(ddof=1) / np.sqrt(replicates)
    # The noise widens by what the statistic says, and nothing else is wrong
    widening = float(result.sample_stats["noise_ratio"].mean())
    if method is sg.MSGNHT:
        widening = 0.0
    euler = h / 2 if method is sg.SGLD else 0.0
    error = squares.std(ddof=1) / np.sqrt(replicates)
    # To first order in the noise and in h, the known second-order rest 5 % of that
    known = widening + euler
    assert abs(squares.mean() - 1 - known) < STANDARD_ERRORS * error + 0.1 * known + 0.005
    if method is not sg.MSGNHT:
        assert widening > 0.005


def test_what_is_wrong_is_named():
    with pm.Model():
        x = pm.Normal("x", shape=3)
        y = pm.Minibatch(np.zeros((10, 3)), batch_size=5)
        with pytest.raises(ValueError, match=r"for 'x' has shape \(\)"):
            sg.GradientPotential("a", lambda x, y, noise: y.sum(), [x], [y], total_size=10)
        with pytest.raises(TypeError, match="dtype int64"):
            sg.GradientPotential(
                "b", lambda x, y, noise: y.sum(axis=0).astype("int64"), [x], [y], total_size=10
            )
        with pytest.raises(ValueError, match="returned 2 estimates for 1 variables"):
            sg.GradientPotential("c", lambda x, y, noise: [x, x], [x], [y], total_size=10)
        with pytest.raises(ValueError, match="total_size=<number of rows>"):
            sg.GradientPotential("d", lambda x, y, noise: x, [x], [y])
        with pytest.raises(ValueError, match=r"no pm\.Minibatch"):
            sg.GradientPotential("e", lambda x, noise: x, [x], total_size=10)
        with pytest.raises(ValueError, match="total_size=<number of rows>"):
            sg.GradientPotential("f", lambda x, noise: (y - x).sum(axis=0), [x])


@pytest.mark.parametrize("given", ["rows", "noise", "both"])
def test_a_loop_is_handed_what_it_reads(given):
    data = np.zeros((20, 3))

    def estimate(theta, y, noise):
        u = noise.normal((3, 4))

        def without_rows(u_i, i):
            return u_i + y[:, i]

        def without_noise(i, y):
            return u[i] + y[:, i]

        def handed(u_i, i, y):
            return u_i + y[:, i]

        function, sequences, others = {
            "rows": (without_noise, [pt.arange(3)], [y]),
            "noise": (without_rows, [u, pt.arange(3)], []),
            "both": (handed, [u, pt.arange(3)], [y]),
        }[given]
        found = pytensor.scan(
            function, sequences=sequences, non_sequences=others, n_steps=3, return_updates=False
        )
        return (found - theta).sum()

    with pm.Model():
        theta = pm.Normal("theta")
        y = pm.Minibatch(data, batch_size=4)
        if given == "both":
            sg.GradientPotential("y", estimate, [theta], [y], total_size=20)
            return
        with pytest.raises(ValueError, match="'y' has a loop"):
            sg.GradientPotential("y", estimate, [theta], [y], total_size=20)


def test_nothing_is_tuned_and_nothing_else_samples():
    with pm.Model() as model:
        x = pm.Normal("x")
        sg.GradientPotential("y", lambda x, noise: noise.normal(()) - x, [x])
        with pytest.raises(ValueError, match=r"GradientPotential.*Pass step_size"):
            sg.CoRVSGLD()
        with pytest.raises(ValueError, match="gradient='plain'"):
            sg.CoRVSGLD(step_size=0.1, gradient=sg.SVRG())
        with pytest.raises(NotImplementedError, match="by the step methods of pymc_sgmcmc alone"):
            model.compile_logp(mode="FAST_COMPILE")(model.initial_point())
        with pytest.raises(NotImplementedError, match="GradientPotential"):
            sg.diagnostics.gradient_noise(model, {"x": 0.0})


def test_nan_ends_in_a_named_error():
    with pm.Model():
        x = pm.Normal("x")
        sg.GradientPotential("y", lambda x, noise: x * np.nan, [x])
        step = sg.CoRVSGLD(step_size=0.1)
        with pytest.raises(pm.exceptions.SamplingError, match="gradient for 'x' is not finite"):
            pm.sample(step=step, draws=20, tune=0, chains=1, random_seed=1, **QUIET)


def test_a_call_has_few_draws_where_the_likelihood_draws_many_numbers():
    with pm.Model():
        x = pm.Normal("x")
        sg.GradientPotential("y", lambda x, noise: noise.normal((200, 1000)).mean() - x, [x])
        step = sg.SGLD(step_size=0.1, backend="jax", **UNTUNED)
    step.step(start(step, 0, 1))
    assert step._runner._transition.layout.draws == 1


def test_a_model_is_drawn():
    with pm.Model() as model:
        theta, y = pm.Normal("theta"), pm.Minibatch(np.zeros(20), batch_size=4)
        sg.GradientPotential("y", lambda x, y, noise: y.sum() - x, [theta], [y], total_size=20)
    nodes = [node for plate in ModelGraph(model).get_plates() for node in plate.variables]
    assert {node.var.name for node in nodes} == {"theta", "y"}

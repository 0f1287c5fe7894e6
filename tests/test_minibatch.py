"""Batches against the full data: unbiased gradients, block sums, fresh batches."""

from math import lcm

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_sgmcmc as sg

from pymc_sgmcmc.adaptation import Adaptation
from pymc_sgmcmc.compiling import INTERPRETER
from pymc_sgmcmc.coordinates import coordinates_at
from pymc_sgmcmc.engine import Engine
from pymc_sgmcmc.minibatch import BATCH_SCHEMES
from pymc_sgmcmc.posterior import Posterior
from pymc_sgmcmc.potential import Potential
from pymc_sgmcmc.testing import UNTUNED
from pymc_sgmcmc.transition import place

# Standard errors between permutations of the rows that an average of batches may be off
STANDARD_ERRORS = 4.0
QUIET = {"progressbar": False, "compute_convergence_checks": False}


def data(seed, *shapes):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=shape) for shape in shapes]


# Each model is written twice, with ``batched`` and ``total`` to tell them apart


def regression(batched, total):
    """Two likelihoods on one batch of constants, group indices, a start of the user's."""
    X, y = data(0, (60, 3), 60)
    groups = np.arange(60, dtype=np.int32) % 4
    x, g, y, z = batched(X, groups, y, X[:, 0] > 0.3, batch_size=7)
    intercept = pm.Normal("intercept", 0.0, 2.0)
    slopes = pm.Normal("slopes", 0.0, 1.0, shape=3)
    spread = pm.HalfNormal("spread", 1.0, initval=0.5)
    effects = pm.Normal("effects", 0.0, 1.0, shape=4)
    sd = pm.HalfNormal("sd", 1.0)
    pm.Normal("y", intercept + x @ slopes + spread * effects[g], sd, observed=y, **total(60))
    pm.Bernoulli("z", logit_p=x @ slopes, observed=z, **total(60))


def two_batches(batched, total):
    """Data containers with dims, in two independent batches of different lengths."""
    X, y, w = data(1, 60, 60, 45)
    x = pm.Data("x_data", X, dims="row")
    y = pm.Data("y_data", y, dims="row")
    w = pm.Data("w_data", w, dims="other_row")
    (x, y), (w, n) = batched(x, y, batch_size=7), batched(w, np.arange(45) % 5.0, batch_size=8)
    mean = pm.Normal("mean", 0.0, 1.0, shape=2)
    rate = pm.Gamma("rate", 2.0, 1.0)
    pm.Normal("y", mean[0] + mean[1] * x, 0.7, observed=y, **total(60))
    pm.Poisson("n", rate * pt.exp(mean[1] * w), observed=n, **total(45))


def rows_of_several_dimensions(batched, total):
    """Matrices as observed variables, with an integer or a list as total_size; N = 4B."""
    X, Y, Z = data(2, (44, 2), (44, 3), (44, 3))
    x, y, z = batched(X, Y, Z, batch_size=11)
    weights = pm.Normal("weights", 0.0, 1.0, shape=(2, 3))
    sds = pm.HalfNormal("sds", 1.0, shape=3)
    pm.Normal("y", x @ weights, sds, observed=y, **total([44, None]))
    pm.StudentT("x", 4.0, mu=y @ weights.T, sigma=1.0, observed=x, **total([44, ...]))
    pm.MvNormal("z", weights[0], np.diag([1.0, 2.0, 3.0]) + sds[0], observed=z, **total(44))


def kinds_of_likelihoods(batched, total):
    """Censored, a mixture and a distribution of the user's own."""
    [y] = data(3, 47)
    low, y, z = batched(np.clip(y, -0.5, 1.0), y, 2 * y, batch_size=13)
    mean = pm.Normal("mean", [0.0, 1.0], 1.0)
    sd = pm.HalfNormal("sd", 1.0)

    def laplace(value, mean, sd):
        return -pt.abs(value - mean) / sd - pt.log(2 * sd)

    normal = pm.Normal.dist(mean[0], sd)
    pm.Censored("censored", normal, lower=-0.5, upper=1.0, observed=low, **total(47))
    pm.NormalMixture("mixture", [0.3, 0.7], mean, sd, observed=y, **total(47))
    pm.CustomDist("custom", mean[1], sd, logp=laplace, observed=z, **total(47))


MODELS = [regression, two_batches, rows_of_several_dimensions, kinds_of_likelihoods]


def with_batches(build):
    def batched(*arrays, batch_size):
        return pm.Minibatch(*arrays, batch_size=batch_size)

    with pm.Model() as model:
        build(batched, lambda size: {"total_size": size})
    return model


def without_batches(build):
    with pm.Model() as model:
        build(lambda *arrays, batch_size: arrays, lambda size: {})
    return model


def reference(build):
    """Return a point of a model, and PyMC's log density and gradient without batches."""
    model = without_batches(build)
    point = model.initial_point()
    start = np.random.default_rng(4)
    phi = [point[v.name] + start.normal(0, 0.3, np.shape(point[v.name])) for v in model.value_vars]
    outputs = [model.logp(), model.dlogp()]
    logp, gradient = pm.compile(model.value_vars, outputs, mode=INTERPRETER)(*phi)
    return phi, float(logp), gradient


class FullDensity:
    """Log density and gradient of the full data, as tuning has them."""

    def __init__(self, posterior, backend):
        self.posterior, self.backend = posterior, backend
        self.potential = Potential(posterior, backend)
        self.n_blocks = self.potential.n_blocks

    def __call__(self, phi, scales=(), others=()):
        posterior = self.posterior
        tables = [
            BATCH_SCHEMES["shuffled"].arrange(array, np.random.default_rng(0), batch.batch_size)
            for batch, arrays in zip(posterior.minibatches, posterior.arrays, strict=True)
            for array in arrays
        ]
        fixed = [*scales, *others, *posterior.data.values(), *tables]
        self.potential.set_fixed(place(fixed, self.backend))
        u, gradient = self.potential.full(self.potential.join(phi)[None])
        return -u[0], [-g for g in self.potential.split(gradient[0])]


def full_density(model, choice="model", backend="interpreter"):
    coordinates, phi, scales = coordinates_at(
        model, model.value_vars, choice, model.initial_point()
    )
    return FullDensity(Posterior(model, coordinates), backend), phi, scales


def joined(blocks):
    return np.concatenate([np.ravel(block) for block in blocks])


# ---------------------------------------------------------------- the full data in blocks


@pytest.mark.parametrize(
    ("build", "backend"),
    [(build, "interpreter") for build in MODELS if build is not regression]
    + [
        (regression, "jax"),
        pytest.param(two_batches, "numba", marks=pytest.mark.slow),
    ],
    ids=lambda x: x if isinstance(x, str) else x.__name__,
)
def test_sum_over_blocks_is_pymcs_full_log_density(build, backend):
    phi, logp, gradient = reference(build)
    full, *_ = full_density(with_batches(build), backend=backend)
    found, found_gradient = full(phi)
    np.testing.assert_allclose(found, logp, rtol=1e-12)
    largest = abs(gradient).max()
    np.testing.assert_allclose(joined(found_gradient), gradient, rtol=0, atol=1e-12 * largest)


@pytest.mark.parametrize(("rows", "batch_size"), [(5, 5), (5, 1), (7, 3), (8, 7)])
def test_every_row_is_in_one_block(rows, batch_size):
    values = 10.0 ** np.arange(rows)
    with pm.Model() as model:
        y = pm.Minibatch(values, batch_size=batch_size)
        mean = pm.Flat("mean")
        # The log density of a row is its value times the mean
        pm.CustomDist("y", mean, logp=lambda v, m: m * v, observed=y, total_size=rows)
    full, *_ = full_density(model)
    assert full.n_blocks == -(-rows // batch_size)
    log_density, [gradient] = full([np.array(2.0)])
    np.testing.assert_allclose([log_density, gradient], [2 * values.sum(), values.sum()])


def test_blocks_in_lipschitz_coordinates_with_a_variable_of_another_step():
    models = with_batches(two_batches), without_batches(two_batches)
    found = []
    for model in models:
        point = model.initial_point()
        values = [v for v in model.value_vars if v.name != "mean"]
        coordinates, phi, scales = coordinates_at(model, values, "lipschitz", point)
        full = FullDensity(Posterior(model, coordinates), "interpreter")
        assert [v.name for v in full.posterior.others] == ["mean"]
        log_density, gradient = full([x + 0.2 for x in phi], scales, [np.array([0.3, -0.2])])
        found.append([log_density, *joined(gradient)])
    np.testing.assert_allclose(found[0], found[1], rtol=1e-11)


def test_a_potential_that_is_no_sum_over_rows_has_no_full_density():
    with pm.Model() as model:
        y = pm.Minibatch(np.arange(20.0), batch_size=4)
        mean = pm.Normal("mean")
        pm.Potential("pull", -pt.sqr(mean - y.mean()))
    with pytest.raises(NotImplementedError, match="'pull'"):
        full_density(model)


# ---------------------------------------------------------------- batches in the sampler


class Recorder(sg.SGMCMCStep):
    """Stay where you are and write down the gradient of every update."""

    def initial_extra(self, position, rng):
        return {"trace": [np.zeros((self.requested.thin, *x.shape)) for x in position]}

    def update(self, position, extra, gradient, step_size, noise):
        estimated = gradient(position)
        return position, {
            "trace": extra["trace"].map(
                lambda trace, g: pt.concatenate([trace[1:], g[None]]), estimated
            )
        }

    def run(self, seed, phi):
        """Return the gradients of ``thin`` updates of a new chain, shape (thin, dimension)."""
        self.setup_chain(np.random.default_rng(seed), 0, 1)
        self.position = phi
        self.adaptation = Adaptation(thin=self.requested.thin)
        self.extra = self.initial_extra(phi, None)
        self.step(self.model.initial_point())
        return np.concatenate([t.reshape(len(t), -1) for t in self.extra["trace"]], axis=1)


UPDATES = lcm(60, 45)


@pytest.fixture(scope="module", params=["shuffled", "random"])
def scheme(request):
    return request.param


@pytest.fixture(scope="module", params=[regression, two_batches], ids=lambda b: b.__name__)
def recorded(request, scheme):
    """A recorder, a position, and the gradient of the full data there."""
    phi, _, gradient = reference(request.param)
    model = with_batches(request.param)
    with model:
        recorder = Recorder(
            step_size=1.0, batch=scheme, transforms="model", **{**UNTUNED, "thin": UPDATES}
        )
    return recorder, phi, -gradient


def test_every_row_is_drawn_equally_often(scheme):
    rows, size, updates = 30, 7, 60_000
    drawn = BATCH_SCHEMES[scheme].draw(np.random.default_rng(6), rows, size, updates)
    counts = np.bincount(drawn.ravel(), minlength=rows)
    assert len(counts) == rows
    expected = drawn.size / rows
    # Of 30 Poisson-like counts; a chain keeps one order of its rows, so that each must hold
    assert abs(counts - expected).max() < 4 * np.sqrt(expected)


def draw_every_offset_equally_often(engine, rng, transition, updates):
    batches = []
    for minibatch, arrays in zip(
        engine.posterior.minibatches, engine.posterior.arrays, strict=True
    ):
        offsets = np.arange(updates + transition.fresh, dtype=np.int32)
        if not engine.scheme.contiguous:
            offsets = offsets[:, None] + np.arange(minibatch.batch_size, dtype=np.int32)
        batches.append(offsets % len(arrays[0]))
    return batches


def test_average_over_all_batches_is_the_full_gradient(recorded, monkeypatch):
    recorder, phi, full = recorded
    monkeypatch.setattr(Engine, "draw_batches", draw_every_offset_equally_often)
    mean = recorder.run(1, phi).mean(axis=0)
    np.testing.assert_allclose(mean, full, rtol=0, atol=1e-12 * abs(full).max())


def z_score(samples, expected):
    """Deviation of a mean of independent samples from its expectation, in standard errors."""
    error = samples.std(axis=0, ddof=1) / np.sqrt(len(samples))
    return (samples.mean(axis=0) - expected) / error


def test_batch_gradient_is_unbiased(recorded):
    recorder, phi, full = recorded
    means = np.array([recorder.run(seed, phi).mean(axis=0) for seed in range(60)])
    z = z_score(means, full)
    assert abs(z).max() < STANDARD_ERRORS


def test_batch_is_fresh_at_every_update(recorded):
    recorder, phi, _ = recorded
    distinct = len(np.unique(recorder.run(2, phi)[:, 0]))
    # The same rows are added in the same order
    offsets = 60 * (1 - (1 - 1 / 60) ** UPDATES)
    least = offsets if recorder.settings.batch == "shuffled" else UPDATES
    assert distinct >= least - 5


def test_noise_is_that_of_the_scheme(scheme):
    """Sampling with replacement, or in blocks of permuted rows: without."""
    rows, size, updates = 300, 20, 200
    [y] = data(5, rows)
    squares = []
    for seed in range(400):
        rng = np.random.default_rng(seed)
        table = BATCH_SCHEMES[scheme].arrange(y, rng, size)
        drawn = BATCH_SCHEMES[scheme].draw(rng, rows, size, updates)
        if scheme == "shuffled":
            drawn = drawn[:, None] + np.arange(size)
        sums = rows / size * table[drawn].sum(axis=1)
        squares.append(np.mean((sums - y.sum()) ** 2))
    variance = rows**2 / size * y.var()
    if scheme == "shuffled":
        variance *= (rows - size) / (rows - 1)
    assert abs(z_score(np.array(squares), variance)) < STANDARD_ERRORS


def test_batches_are_new_at_every_update_and_in_every_chain(monkeypatch):
    drawn, orders = [], []
    original = Engine.draw_batches, Engine.tables

    def draw_batches(engine, rng, transition, updates):
        batches = original[0](engine, rng, transition, updates)
        if rng is step.batch_rng:  # not at the start, where the density is only looked at
            drawn.append(batches)
        return batches

    def tables(engine, row_order):
        orders.append(row_order)
        return original[1](engine, row_order)

    monkeypatch.setattr(Engine, "draw_batches", draw_batches)
    monkeypatch.setattr(Engine, "tables", tables)
    # Draws that were made ahead and then forgotten would count twice
    monkeypatch.setattr("pymc_sgmcmc.engine._MOST_DRAWS", 1)
    with pm.Model():
        y = pm.Minibatch(np.arange(100_000.0), batch_size=5)
        pm.Normal("y", pm.Normal("mean"), 1e6, observed=y, total_size=100_000)
        step = sg.CoRVSGLD(step_size=1e-6, **UNTUNED)
        for _ in range(2):
            dt = pm.sample(step=step, draws=20, tune=5, chains=2, cores=1, random_seed=1, **QUIET)
    assert dt.sample_stats.sizes["draw"] == 20
    offsets = np.array([batch[-20:] for [batch] in drawn])
    assert offsets.shape == (2 * 2 * 25, 20)
    first, second = offsets[:50], offsets[50:]
    # The seed of pm.sample reaches the batches and the order of the rows
    np.testing.assert_array_equal(first, second)
    assert orders[:2] == orders[2:]
    assert orders[0] != orders[1]
    # 1,000 offsets out of 100,000: five are expected to be a repetition
    assert len(np.unique(first)) > 980
    assert offsets.min() >= 0
    assert offsets.max() < 100_000


def test_total_size_that_is_not_the_number_of_rows_is_warned_of():
    with pm.Model() as model:
        data = pm.Data("data", np.zeros(100))
        batch = pm.Minibatch(data, batch_size=10)
        x = pm.Normal("x")
        pm.Normal("y", x, 1, observed=batch, total_size=100)
        pm.Normal("z", x, 1, observed=pm.Minibatch(data, batch_size=10), total_size=[data.shape[0]])
    step = sg.SGLD(step_size=1e-3, model=model, **UNTUNED)
    step.setup_chain(np.random.default_rng(0), 0, 2)
    step.step({"x": np.zeros(())})
    with model:
        pm.set_data({"data": np.zeros(1000)})
    with pytest.warns(UserWarning, match="'y' has total_size=100, but its pm.Minibatch .* 1000"):
        step.setup_chain(np.random.default_rng(0), 0, 2)

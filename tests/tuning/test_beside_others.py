"""Several step methods on one model: their joint start, and draws against the references."""

import copy

from functools import cache
from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc.distributions.transforms import ordered
from pytensor import wrap_py

import pymc_sgmcmc as sg

from helpers.gallery import BENCHMARKS, check
from helpers.modes import REWRITTEN
from helpers.sampling import run
from pymc_sgmcmc.chain.memory import Memory, Place
from pymc_sgmcmc.kernel.options import Options
from pymc_sgmcmc.kernel.settings import Settings
from pymc_sgmcmc.tuning import beside_others
from pymc_sgmcmc.tuning.beside_others import Companion, times_of_tuning
from pymc_sgmcmc.tuning.density import Density
from pymc_sgmcmc.tuning.surface import NoGaussianError, TuningError

GROUPS, EACH = 30, 40


@cache
def hierarchy():
    """Effects and their scale, centred, in the step of the scale first: compiled once."""
    rng = np.random.default_rng(1)
    theta = rng.normal(1, 0.5, GROUPS)
    group = np.repeat(np.arange(GROUPS), EACH)
    y = rng.normal(theta[group], 1)
    with pm.Model() as model:
        mu, tau = pm.Normal("mu", 0, 5), pm.HalfNormal("tau", 5)
        effects = pm.Normal("theta", mu, tau, shape=GROUPS)
        pm.Normal("y", effects[group], 1, observed=y)
        steps = [sg.CoRVSGLD(x, backend="jax") for x in ([mu, tau], [effects])]
    return model, steps, y.reshape(GROUPS, EACH).mean(axis=1)


def begun(model, steps, seed=0, start=None):
    """Return the point after the first draw of each step in turn."""
    point = model.initial_point() | (start or {})
    for step in steps:
        step.setup_chain(np.random.default_rng(seed), 100, 10)
    for step in steps:
        point, _ = step.step(point)
    return point


@pytest.fixture
def searches(monkeypatch):
    """Collect the models in which the bulk of all variables was looked for."""
    seen = []
    search = beside_others._bulk_of_all

    def counted(joint, point, state):
        seen.append(joint)
        return search(joint, point, state)

    monkeypatch.setattr(beside_others, "_bulk_of_all", counted)
    return seen


@pytest.mark.slow
def test_a_scale_is_not_lost_to_effects_that_have_not_moved(searches):
    model, steps, means = hierarchy()
    for seed in range(2):
        point = begun(model, steps, seed)
        spread = np.sqrt(np.var(means) - 1 / EACH)
        # The posterior's sd of log tau is about 1 / sqrt(2 GROUPS), and of an effect 1 / sqrt(EACH)
        assert abs(point["tau_log__"] - np.log(spread)) < 4 / np.sqrt(2 * GROUPS)
        assert np.abs(point["theta"] - means).max() < 5 / np.sqrt(EACH)
    # Once for each chain, of a model that is compiled once
    assert len(searches) == 2 and searches[0] is searches[1]
    assert [step.chain.jitter for step in steps] == [0, 0]


def test_what_ran_before_in_a_process_does_not_decide_a_start(searches, monkeypatch):
    starts, search = [], beside_others._bulk_of_all
    monkeypatch.setattr(
        beside_others, "_bulk_of_all", lambda *args: starts.append(search(*args)) or starts[-1]
    )
    model, steps, _ = hierarchy()
    begun(model, steps)
    # Begun again where that chain began: as of initvals= from the run before
    begun(model, steps, 1, starts[0])
    assert len(searches) == 2


def test_a_fault_in_the_search_is_no_lack_of_a_bulk(monkeypatch):
    def broken(*args):
        raise TypeError("a fault")

    model, steps, _ = hierarchy()
    monkeypatch.setattr(beside_others, "_bulk_of_all", broken)
    with pytest.raises(TypeError, match="a fault"):
        begun(model, steps)


@pytest.mark.parametrize("error", [TuningError("no bulk"), NoGaussianError()])
def test_without_a_common_bulk_each_step_begins_where_it_is(monkeypatch, error):
    def nowhere(*args):
        raise error

    model, [step, _], _ = hierarchy()
    monkeypatch.setattr(beside_others, "find_bulk", nowhere)
    begun(model, [step])
    assert step.chain.jitter > 0


def test_a_chain_without_a_gaussian_is_not_tuned_again(monkeypatch):
    monkeypatch.setattr(Companion, "_tuned", lambda *args, **options: "tuned")
    memory = Memory()
    for adapts in (True, False):
        state = SimpleNamespace(memory=memory, tuning_draws=100, draw=5, updates=9, scales=[])
        runner = SimpleNamespace(
            state=state, settings=Settings(adapts=adapts), phi=lambda: [], settle=lambda: None
        )
        after = Companion(None, None, None).before_draw(runner, [])
        assert after == (runner if adapts else "tuned")
    assert memory.seen == 2


def test_a_schedule_goes_on_where_the_chain_is_tuned_again():
    with pm.Model() as model:
        a = pm.Normal("a")
        pm.Normal("b", a, 1)
        step = sg.CoRVSGLD([a], step_size=sg.polynomial(0.1, b=10), backend="jax")
    rng, sizes, tune = np.random.default_rng(0), [], 20
    assert len(times_of_tuning(tune)) == 2
    step.setup_chain(np.random.default_rng(1), tune, 5)
    point = model.initial_point()
    for _ in range(tune + 5):
        point, [stats] = step.step(point)
        sizes.append(stats["step_size"])
        point["b"] = np.array(rng.normal(point["a"], 1))
    assert np.all(np.diff(sizes) < 0)


def test_a_draw_that_diverges_keeps_what_trials_have_found(monkeypatch):
    again = SimpleNamespace(settings=Settings(step_size=0.2), advance=lambda h, *args: h)
    monkeypatch.setattr(Companion, "_tuned", lambda *args, **options: again)
    tried = SimpleNamespace(
        state=SimpleNamespace(psi=[np.zeros(1)], extra={}, scales=[]),
        settings=Settings(step_size=0.05, warnings=[("slow", {})]),
        advance=lambda *args: SimpleNamespace(rejected=1),
        restart=lambda *args: None,
        phi=lambda: [np.zeros(1)],
    )
    after, step_size, made_by = Companion(None, Options(), None).draw(tried, 0.05, [])
    assert after is again
    assert step_size == made_by == again.settings.step_size == 0.05
    assert again.settings.warnings == [("slow", {})]


def test_without_whitening_a_draw_far_out_in_its_own_units_has_not_diverged(monkeypatch):
    tuned, tune_again = [], Companion._tuned

    def counted(self, state, places, *, trials):
        tuned.append(state.draw)
        return tune_again(self, state, places, trials=trials)

    monkeypatch.setattr(Companion, "_tuned", counted)
    with pm.Model() as model:
        x, z = pm.Normal("x", 0, 5000), pm.Bernoulli("z", 0.5)
        pm.Normal("y", x + 1000 * z, 10_000, observed=0.0)
        steps = [sg.CoRVSGLD([x], scale=None, backend="jax"), pm.BinaryGibbsMetropolis([z])]
        run(steps, 2, 1, model=model, tune=30)
    assert set(tuned) <= set(times_of_tuning(30))


def test_remembered_places_move_with_the_scales_of_the_coordinates():
    with pm.Model() as model:
        b, s = pm.Normal("b"), pm.HalfNormal("s", 2)
        pm.Normal("y", b, s, observed=[0.5, 3.0])
        step = sg.CoRVSGLD([s], backend="jax")
    step.setup_chain(np.random.default_rng(0), 10, 10)
    engine = step._engine_at(model.initial_point())
    [phi], scales = engine.express(model.initial_point())
    places = [Place([np.array(b)], [phi + b], scales) for b in (-1.0, 1.0)]
    density = Density(engine, step.chain, places)
    engine.attempt(density.compile)
    surface, split = density.surface(), density.views[0].split

    def values():
        both = zip(surface.places(), places, strict=True)
        return [engine.values_at(split(x), density.scales, at.others) for x, at in both]

    before = values()
    density.rescale(surface.places() + 3)
    assert density.scales[0] > 2 * scales[0]
    np.testing.assert_allclose(values(), before)


def test_variables_of_other_packages_begin_there_too():
    model, [step, _], means = hierarchy()
    point = begun(model, [step])
    assert np.corrcoef(point["theta"], means)[0, 1] > 0.99


def test_a_step_of_all_variables_has_no_companions_to_wait_for(searches):
    with pm.Model() as model:
        pm.Normal("a"), pm.Normal("b")
        step = sg.CoRVSGLD(backend="jax")
    begun(model, [step])
    assert not searches


def test_what_is_given_by_hand_begins_at_its_start(searches):
    with pm.Model() as model:
        a = pm.Normal("a")
        pm.Normal("b", a, 1, initval=7.0)
        step = sg.SGLD([a], step_size=0.01, scale=None, gradient="plain", batches=1, thin=1)
    assert begun(model, [step])["b"] == 7
    assert not searches


def test_what_another_step_keeps_to_itself_is_not_moved(searches):
    of_trees = type("Trees", (type(pm.Normal.rv_op),), {"__module__": "pymc_bart.bart"})
    trees = type("BART", (pm.Normal,), {"rv_op": of_trees()})
    with pm.Model() as model:
        a = pm.Normal("a")
        trees("b", 0, 1, initval=0.5)
        pm.Normal("y", a + model["b"], 1, observed=3.0)
        step = sg.CoRVSGLD(backend="jax")
        with pytest.raises(ValueError, match=r"'b' is a sum of trees, .* PyMC chooses that method"):
            sg.CoRVSGLD([a, model["b"]])
    assert [value.name for value in step.vars] == ["a"]
    assert begun(model, [step])["b"] == 0.5
    assert not searches


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Numba will use object mode")
def test_others_without_a_gradient_stay_where_they_are():
    @wrap_py(itypes=[pt.dscalar], otypes=[pt.dscalar])
    def opaque(x):
        return np.array(2 * x)

    with pm.Model() as model:
        a, b = pm.Normal("a"), pm.Normal("b", initval=0.5)
        pm.Normal("y", a + opaque(b), 1, observed=3.0)
        step = sg.CoRVSGLD([a], backend="numba")
    point = begun(model, [step])
    assert point["b"] == 0.5 and np.isfinite(point["a"])


@pytest.mark.slow
@pytest.mark.parametrize("alone", [True, False])
def test_chains_of_a_mixture_begin_at_its_centres(alone):
    centres = np.array([-4.0, 0.0, 4.0])
    rng = np.random.default_rng(3)
    y = rng.normal(centres[rng.choice(3, 4000, p=[0.2, 0.3, 0.5])], 1)
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.ones(3))
        mu = pm.Normal("mu", 0, 5, shape=3, transform=ordered, initval=centres / 2)
        s = pm.HalfNormal("s", 2, shape=3)
        rows = pm.Minibatch(y, batch_size=200)
        pm.NormalMixture("y", w, mu, s, observed=rows, total_size=len(y))
        of_two = sg.SMLD([w], backend="jax"), sg.CoRVSGLD([mu, s], backend="jax")
        steps = [sg.CoRVSGLD(backend="jax")] if alone else of_two
    for seed in range(8):
        point = begun(model, steps, seed)
        found = ordered.backward(point["mu_ordered__"]).eval(mode=REWRITTEN)
        # A lesser mode has a centre that is more than half a unit off
        assert np.abs(found - centres).max() < 0.3


@pytest.mark.slow
def test_chains_of_a_mixture_in_the_plane_begin_at_all_clusters():
    rng = np.random.default_rng(0)
    centres = rng.normal(0, 4, size=(6, 2))
    y = rng.normal(centres[rng.choice(6, 1800, p=rng.dirichlet(np.full(6, 5.0)))], 0.7)
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.ones(6))
        mu, s = pm.Normal("mu", 0, 5, shape=(6, 2)), pm.HalfNormal("s", 1, shape=6)
        of = pm.MvNormal.dist(mu, chol=s[:, None, None] * np.eye(2))
        pm.Mixture("y", w, of, observed=y)
        steps = [sg.CoRVSGLD(backend="jax")]
    for seed in (0, 4):
        found = begun(model, steps, seed)["mu"]
        away = np.linalg.norm(found[:, None] - centres, axis=2)
        assert away.min(axis=0).max() < 0.5, seed
        # Tuned as near a Gaussian, not along its own way
        assert steps[0]._runner.settings.warnings == [], seed


# ---------------------------------------------------------------- draws, with default arguments

MODELS = (
    "linear_blocks",
    "linear_correlated_blocks",
    "poisson_three_blocks",
    "lines_of_groups_blocks",
    "mixture_blocks",
    "hierarchical_normal_blocks",
    "hierarchical_logit_blocks",
    "mixture_indicators",
    "mixture_indicators_apart",
    "mixture_nuts",
    "signal_indicators",
    "normal_gamma_slice",
    "hierarchical_normal_slice",
    "hierarchical_logit_slice",
    "change_point_metropolis",
)


def test_all_mixed_models_are_here(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import gallery

    assert set(MODELS) == set(gallery.MIXED)


@pytest.mark.parametrize(("initval", "stands_still"), [(None, True), ([0, 1], False)])
def test_others_begin_unless_discrete_ones_were_given_a_start(initval, stands_still):
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 5, initval=2.0)
        z = pm.Bernoulli("z", 0.5, shape=2, initval=initval)
        pm.Normal("y", mu * z, 1.0, observed=[3.0, 0.1])
        steps = [sg.CoRVSGLD([mu], backend="jax"), pm.BinaryGibbsMetropolis([z])]
        draws = run(steps, 2, 1, model=model, tune=20, discard_tuned_samples=False)
    found = draws.warmup_posterior["mu"].values[0]
    assert (len(np.unique(found[:6])) == 2) == stands_still
    assert (found[0] == 2.0) == stands_still
    assert len(np.unique(found[6:])) == len(found) - 6
    # Nothing was measured
    assert np.isnan(draws.warmup_sample_stats["grad_norm"].values[0, 0]) == stands_still


# The benchmark has all models, both methods and three seeds. These are one for each kind of
# neighbour: a block of ours, indicators, a slice. R-hat of an indicator that takes the same value
# in all draws is 0 / 0.
@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("hierarchical_logit_blocks", "MSGNHT"),
        ("signal_indicators", "CoRVSGLD"),
        ("normal_gamma_slice", "CoRVSGLD"),
    ],
)
def test_a_model_of_the_benchmark(measure, name, method):
    check(measure(name, method, 2, cores=1, options={"backend": "jax"}))


@pytest.mark.slow
def test_numba(measure):
    check(measure("linear_blocks", "CoRVSGLD", 2, cores=1, options={"backend": "numba"}))


@pytest.mark.slow
def test_chains_that_are_sampled_in_turn_have_a_start_each(searches):
    model, steps, _ = hierarchy()
    chains = [[copy.copy(step) for step in steps] for _ in range(2)]
    for k, chain in enumerate(chains):
        for step in chain:
            step.setup_chain(np.random.default_rng(k), 100, 10)
    for first, _ in chains:
        # What is compiled has no state
        first._engine = chains[0][0]._engine
        first.step(model.initial_point())
    assert len(searches) == 2

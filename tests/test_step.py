"""PyMC's side of a step method: seeds, state, statistics, progress and results."""

import inspect
import logging
import pickle
import re

import arviz as az
import cloudpickle
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
import pytest

from pymc.step_methods import STEP_METHODS
from pymc.step_methods.compound import BlockedStep
from pymc.step_methods.state import equal_dataclass_values

import pymc_sgmcmc as sg

from pymc_sgmcmc.testing import UNTUNED

SAMPLERS = {
    "CoRVSGLD": (sg.CoRVSGLD, {"step_size": 1e-4}),
    "FLA": (sg.FLA, {"step_size": 1e-4, "alpha": 1.7}),
    "MSGNHT": (sg.MSGNHT, {"step_size": 5e-3}),
    "SMLD": (sg.SMLD, {"step_size": 1e-4}),
    "SGLD": (sg.SGLD, {"step_size": 1e-4}),
}
FEATURES = ["age", "height", "weight"]
QUIET = {"progressbar": False, "compute_convergence_checks": False}


def regression(rows=400, batch_size=50):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, len(FEATURES)))
    Y = X @ [1.0, -1.0, 0.5] + 0.5 * rng.normal(size=rows)
    with pm.Model(coords={"feature": FEATURES}) as model:
        x, y = pm.Minibatch(X, Y, batch_size=batch_size)
        beta = pm.Normal("beta", 0, 10, dims="feature")
        sigma = pm.HalfNormal("sigma", 1)
        pm.Deterministic("precision", sigma**-2)
        pm.Normal("y", x @ beta, sigma, observed=y, total_size=len(X))
    return model


def location(rows=400, batch_size=50):
    """A small model that has it all: a minibatch, a bounded variable, and little to compile."""
    Y = np.random.default_rng(0).normal(1, 0.5, size=rows)
    with pm.Model() as model:
        y = pm.Minibatch(Y, batch_size=batch_size)
        mu = pm.Normal("mu", 0, 10)
        sigma = pm.HalfNormal("sigma", 1)
        pm.Normal("y", mu, sigma, observed=y, total_size=rows)
    return model


def normal_and_scale():
    with pm.Model() as model:
        pm.Normal("x", shape=2)
        pm.HalfNormal("s")
    return model


def step_for(name, model, **options):
    method, own = SAMPLERS[name]
    return method(model=model, **{"backend": "jax", **UNTUNED, **own, **options})


def twin(step, **options):
    """A new step that is spared the compilation: what is compiled has no state."""
    new = type(step)(model=step.model, **{**UNTUNED, **options})
    new._engine = step._engine
    return new


def start(step, seed=1, draws=100):
    step.setup_chain(np.random.default_rng(seed), 0, draws)
    return step.model.initial_point()


def take(step, point, draws=4):
    """Points and statistics of the next draws, each as one line of bytes."""
    taken = []
    for _ in range(draws):
        point, [stats] = step.step(point)
        numbers = [np.asarray(value, float) for value in (*point.values(), *stats_of(stats))]
        taken.append(b"".join(number.tobytes() for number in numbers))
    return point, taken


def stats_of(stats):
    return [stats[name] for name in sorted(stats) if name != "warning"]


def draws_of(result):
    return {name: np.asarray(values) for name, values in result.posterior.items()}


def assert_same_bits(one, other):
    assert one.keys() == other.keys()
    for name in one:
        assert one[name].tobytes() == other[name].tobytes(), name


# ----------------------------------------------------------------------------- seeds


@pytest.fixture(scope="module")
def numba_step():
    """The only step of this file, outside the slow tests, that numba compiles."""
    step = step_for("CoRVSGLD", location(), backend="numba")
    step.step(start(step))
    return step


@pytest.fixture(scope="module")
def jax_step():
    step = step_for("CoRVSGLD", location())
    step.step(start(step))
    return step


@pytest.fixture(params=["jax", pytest.param("numba")])
def compiled_step(request):
    return request.getfixturevalue(f"{request.param}_step")


def test_same_seed_same_bits(compiled_step):
    _, first = take(compiled_step, start(compiled_step, seed=5))
    _, again = take(compiled_step, start(compiled_step, seed=5))
    _, other = take(compiled_step, start(compiled_step, seed=6))
    assert first == again
    assert len({*first, *other}) == len(first) + len(other)


def test_a_fresh_step_gives_the_same_bits(jax_step):
    fresh = step_for("CoRVSGLD", location())
    assert take(fresh, start(fresh))[1] == take(jax_step, start(jax_step))[1]


def test_jax_and_numba_agree(jax_step, numba_step):
    ends = [take(step, start(step))[0] for step in (jax_step, numba_step)]
    for name, value in ends[0].items():
        np.testing.assert_allclose(value, ends[1][name], rtol=1e-10, err_msg=name)


@pytest.mark.filterwarnings("ignore:Only .* samples per chain")
def test_one_core_and_two_give_the_same_bits(numba_step):
    # Forked processes inherit what is compiled. For JAX see test_processes.py.
    def run(cores, seed=3):
        with numba_step.model:
            result = pm.sample(
                step=numba_step,
                draws=10,
                tune=3,
                chains=2,
                cores=cores,
                mp_ctx="fork",
                random_seed=seed,
                **QUIET,
            )
        return draws_of(result)

    one = run(1)
    assert_same_bits(one, run(2))
    assert not np.any(one["mu"] == run(1, seed=4)["mu"])
    # The chains, too, are different ones
    assert not np.any(one["mu"][0] == one["mu"][1])


def test_chains_differ_in_start_noise_and_batches(jax_step):
    # Of a step this small nothing but the start is seen in the first draw
    step = twin(jax_step, step_size=1e-30)
    states = []
    for rng in np.random.default_rng(1).spawn(2):
        step.setup_chain(rng, 0, 10)
        step.step(step.model.initial_point())
        states.append(step.sampling_state)
    one, other = states
    for a, b in zip(one.position, other.position, strict=True):
        assert np.all(np.abs(a - b) > 1e-6)
    for a, b in zip(one.extra["eta"], other.extra["eta"], strict=True):
        assert np.all(a != b)
    for generator in ("rng", "noise_rng", "batch_rng"):
        assert not equal_dataclass_values(getattr(one, generator), getattr(other, generator))
    assert one.row_order != other.row_order
    for state in states:
        assert np.abs(state.values[0] - step.model.initial_point()["mu"]) <= 1


def test_every_update_has_new_noise_and_a_new_batch(jax_step):
    start(jax_step)
    engine = jax_step._engine_at(jax_step.model.initial_point())
    jax_step._runner_at(jax_step.model.initial_point(), [])
    transition = jax_step._runner._transition
    noise = [transition.noise.draw(jax_step.noise_rng, 20, 3)[0].copy() for _ in range(2)]
    assert len(np.unique(noise)) == np.size(noise)
    offsets = [engine.draw_batches(jax_step.batch_rng, transition, 198)[0] for _ in range(2)]
    # 400 offsets of 400 rows: 1 - 1/e of them are different ones
    assert 220 < len(np.unique(offsets)) < 290


# ----------------------------------------------------------------------------- state


@pytest.mark.parametrize(
    ("name", "batch"),
    [
        *((name, "shuffled") for name in SAMPLERS),
        ("CoRVSGLD", "random"),
        *(
            pytest.param(name, "random", marks=pytest.mark.slow)
            for name in SAMPLERS
            if name != "CoRVSGLD"
        ),
    ],
)
def test_restored_state_continues_bit_for_bit(name, batch):
    options = {"batch": batch, "step_size": sg.polynomial(SAMPLERS[name][1]["step_size"])}
    step = step_for(name, location(), **options)
    point, _ = take(step, start(step))
    stored = pickle.dumps((step.sampling_state, point))
    _, expected = take(step, point)

    state, point = pickle.loads(stored)
    fresh = twin(step, **{**SAMPLERS[name][1], **options})
    fresh.sampling_state = state
    assert equal_dataclass_values(fresh.sampling_state, state)
    assert take(fresh, point)[1] == expected
    # Nothing of the state that was handed over is changed by sampling on
    assert equal_dataclass_values(state, pickle.loads(stored)[0])


@pytest.mark.parametrize("name", ["FLA", "MSGNHT"])
def test_draws_made_ahead_are_those_made_one_by_one(name):
    options = {"batch": "random"} if name == "FLA" else {}
    step = step_for(name, location(), **options)
    _, ahead = take(step, start(step), draws=20)
    calls = step._runner._ahead
    assert calls.count == 16
    assert calls.taken == 4
    point, one_by_one = start(step), []
    for k in range(20):
        if k % 3:
            step._store("updates", step.updates)  # drops the runner
        elif k:
            step._runner.settle()
        point, [line] = take(step, point, draws=1)
        one_by_one.append(line)
    assert one_by_one == ahead


@pytest.mark.slow
@pytest.mark.parametrize("batch", ["shuffled", "random"])
def test_restored_state_continues_bit_for_bit_in_numba(batch):
    step = step_for("CoRVSGLD", location(), batch=batch, backend="numba")
    point, _ = take(step, start(step))
    state = pickle.loads(pickle.dumps(step.sampling_state))
    _, expected = take(step, point)
    fresh = step_for("CoRVSGLD", location(), batch=batch, backend="numba")
    fresh.sampling_state = state
    assert take(fresh, point)[1] == expected


def test_state_round_trips_before_the_first_draw():
    step = step_for("SGLD", normal_and_scale())
    start(step)
    state = step.sampling_state
    assert state.position is None
    assert equal_dataclass_values(pickle.loads(pickle.dumps(state)), state)
    other = step_for("SGLD", normal_and_scale())
    start(other, seed=2)
    assert not equal_dataclass_values(other.sampling_state, state)
    other.sampling_state = state
    assert equal_dataclass_values(other.sampling_state, state)


def test_state_of_other_variables_is_refused():
    state = step_for("SGLD", normal_and_scale(), vars=["x"]).sampling_state
    with pytest.raises(ValueError, match="var_names"):
        step_for("SGLD", normal_and_scale(), vars=["s"]).sampling_state = state


def test_pickled_step_continues_bit_for_bit(jax_step):
    point, _ = take(jax_step, start(jax_step))
    pickled = cloudpickle.dumps(jax_step)
    _, expected = take(jax_step, point)
    # What is compiled stays behind, and so do the data as the backend has them
    assert len(pickled) < 1.1 * len(cloudpickle.dumps(step_for("CoRVSGLD", jax_step.model)))
    copy = cloudpickle.loads(pickled)
    assert copy.model is not jax_step.model
    assert take(copy, point)[1] == expected


# ----------------------------------------------------------------------------- statistics


def documented_statistics(method):
    notes = [
        cls.__doc__.split("Notes\n", 1)[1]
        for cls in (sg.SGMCMCStep, method)
        if "tatistic" in (cls.__doc__ or "") and "Notes\n" in cls.__doc__
    ]
    return {name for text in notes for name in re.findall(r"``([a-z_]+)``", text)}


@pytest.mark.parametrize("name", SAMPLERS)
def test_statistics_are_declared_returned_and_documented(name):
    step = step_for(name, normal_and_scale())
    _, [stats] = step.step(start(step))
    declared = step.stats_dtypes_shapes
    assert stats.keys() == declared.keys() == documented_statistics(type(step))
    for statistic, (dtype, shape) in declared.items():
        if statistic != "warning":
            assert np.shape(stats[statistic]) == tuple(shape), statistic
            assert type(stats[statistic]) is type(np.dtype(dtype).type(0).item()), statistic


def test_statistics_have_the_types_of_those_of_pymc():
    # PyMC refuses a compound step in which one name has two types
    theirs = {
        (name, dtype)
        for method in STEP_METHODS
        if not issubclass(method, sg.SGMCMCStep)
        for name, (dtype, _) in method.stats_dtypes_shapes.items()
    }
    for method, _ in SAMPLERS.values():
        for name, (dtype, _) in method.stats_dtypes_shapes.items():
            assert {other for shared, other in theirs if shared == name} <= {dtype}, name


def test_step_size_and_weight_follow_the_schedule():
    schedule = sg.polynomial(1e-3, b=10, gamma=1.0)
    step = step_for("SGLD", normal_and_scale(), step_size=schedule, thin=5)
    point = start(step)
    for draw in range(3):
        point, [stats] = step.step(point)
        h = schedule(np.arange(5 * draw, 5 * draw + 5))
        assert stats["step_size"] == h[-1]
        assert stats["weight"] == pytest.approx(h.sum())


def faulty():
    """One row in twenty has an infinite gradient."""
    y = np.where(np.arange(20) == 13, np.inf, 0.0)
    with pm.Model() as model:
        x = pm.Normal("x")
        batch = pm.Minibatch(y, batch_size=1)
        pm.Normal("y", x, observed=batch, total_size=20)
    return model


def test_rejected_updates_are_counted_and_reported(caplog):
    with faulty(), caplog.at_level(logging.WARNING):
        result = pm.sample(
            step=sg.SGLD(step_size=1e-3, batch="random", backend="jax", **UNTUNED),
            draws=100,
            tune=10,
            chains=1,
            cores=1,
            random_seed=1,
            progressbar=False,
        )
    rejected = result.sample_stats["rejected_updates"]
    assert 0.02 < rejected.mean() / 20 < 0.08
    np.testing.assert_array_equal(result.sample_stats["diverging"], rejected > 0)
    assert np.all(np.isfinite(result.posterior["x"]))
    assert "warning" not in result.sample_stats
    said = [r.getMessage() for r in caplog.records if "not finite" in r.getMessage()]
    assert len(said) == 1
    assert said[0].startswith(f"{rejected.values.sum()} updates (")
    assert "pass a smaller step_size" in said[0]


# ----------------------------------------------------------------------------- progress bar

HEADERS = ["SG step", "|∇U|", "Rejected"]


def test_pymc_has_the_private_hooks_of_the_progress_bar():
    for name in ("_progressbar_config", "_make_progressbar_update_functions"):
        assert name in vars(sg.SGMCMCStep)
        theirs = inspect.signature(getattr(BlockedStep, name))
        assert inspect.signature(getattr(sg.SGMCMCStep, name)).parameters.keys() == (
            theirs.parameters.keys()
        )


def test_progress_columns_show_what_the_draws_return(jax_step):
    _, [stats] = jax_step.step(start(jax_step))
    columns, fields = jax_step._progressbar_config(n_chains=3)
    assert [column.get_table_column().header for column in columns] == HEADERS
    assert {len(values) for values in fields.values()} == {3}
    [update] = jax_step._make_progressbar_update_functions()
    shown = update(stats)
    assert shown.keys() == {*fields, "failing"}
    assert shown["failing"] is False
    assert update({**stats, "diverging": True})["failing"] is True
    others = [method for method in STEP_METHODS if not issubclass(method, sg.SGMCMCStep)]
    for method in others:
        # CompoundStep merges columns by header, and fields by name
        columns, theirs = method._progressbar_config()
        assert not {column.get_table_column().header for column in columns} & {*HEADERS}
        assert not theirs.keys() & fields.keys()


@pytest.fixture
def wide_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "240")


def test_progress_bar_renders(capsys, wide_terminal):
    with normal_and_scale():
        pm.sample(
            step=sg.CoRVSGLD(step_size=0.01, backend="jax", **UNTUNED),
            draws=5,
            tune=2,
            chains=2,
            cores=1,
            progressbar=True,
            compute_convergence_checks=False,
        )
    shown = capsys.readouterr().out
    for header in HEADERS:
        assert header in shown
    assert "1.00e-02" in shown


def test_progress_bar_renders_with_steps_of_pymc(capsys, wide_terminal):
    with normal_and_scale() as model:
        pm.Normal("y")
        pm.sample(
            step=[
                sg.CoRVSGLD([model["x"]], step_size=0.01, backend="jax", **UNTUNED),
                pm.NUTS([model["s"]]),
                pm.Slice([model["y"]]),
            ],
            draws=5,
            tune=2,
            chains=1,
            cores=1,
            progressbar=True,
            compute_convergence_checks=False,
        )
    shown = capsys.readouterr().out
    for header in [*HEADERS, "Divergences", "Steps out"]:
        assert header in shown


# ----------------------------------------------------------------------------- results


@pytest.mark.filterwarnings(
    # PyMC's predictive sampling of a model with pm.Minibatch says so by itself
    "ignore:Numba will use object mode to run MinibatchRandomVariable:UserWarning"
)
@pytest.mark.parametrize("name", [name for name in SAMPLERS if name != "SGLD"])
def test_the_result_is_like_any_other(name, tmp_path):
    model = regression()
    with model:
        result = pm.sample(
            step=step_for(name, model),
            draws=60,
            tune=20,
            chains=2,
            cores=1,
            random_seed=1,
            **QUIET,
        )
        pm.sample_posterior_predictive(
            result,
            extend_inferencedata=True,
            random_seed=1,
            progressbar=False,
            compile_kwargs={"mode": "FAST_COMPILE"},
        )
    posterior = result.posterior
    assert posterior["beta"].dims == ("chain", "draw", "feature")
    assert posterior["beta"].shape == (2, 60, 3)
    assert list(posterior["feature"].values) == FEATURES
    np.testing.assert_allclose(posterior["precision"], posterior["sigma"] ** -2, rtol=1e-12)
    assert np.all(posterior["sigma"] > 0)
    declared = set(SAMPLERS[name][0].stats_dtypes_shapes) - {"warning"}
    assert set(result.sample_stats.data_vars) == declared
    assert result.sample_stats["step_size"].dims == ("chain", "draw")
    assert result.posterior_predictive["y"].dims[:2] == ("chain", "draw")

    summary = az.summary(result)
    rows = {*(f"beta[{feature}]" for feature in FEATURES), "sigma", "precision"}
    assert set(summary.index) == rows
    az.plot_trace_dist(result)
    az.plot_forest(result)
    plt.close("all")
    result.to_netcdf(tmp_path / "result.nc")
    with az.from_netcdf(tmp_path / "result.nc") as stored:
        assert stored.posterior.identical(posterior)
        assert set(stored.children) == set(result.children)


def sample(step, **options):
    with step.model:
        return pm.sample(
            step=step,
            **{"draws": 20, "chains": 2, "cores": 1, "random_seed": 1, **QUIET, **options},
        )


def test_tuning_draws_can_be_kept(jax_step):
    result = sample(jax_step, tune=7, discard_tuned_samples=False)
    assert result.warmup_posterior.sizes["draw"] == 7
    assert result.posterior.sizes["draw"] == 20
    assert set(result.warmup_sample_stats.data_vars) == set(result.sample_stats.data_vars)


@pytest.mark.filterwarnings("ignore:`return_inferencedata=False` is deprecated:FutureWarning")
def test_multitrace_can_be_returned(jax_step):
    trace = sample(jax_step, tune=7, return_inferencedata=False)
    assert trace.get_values("mu").shape == (40,)
    assert trace.get_sampler_stats("weight").shape == (40,)


@pytest.mark.parametrize("cores", [1, 2])
def test_interrupted_chains_are_kept(cores, numba_step):
    reached = {}

    def interrupt(trace, draw):
        reached[draw.chain] = draw.draw_idx
        # PyMC drops a chain that is much shorter than the others
        if len(reached) == 2 and min(reached.values()) == 199:
            raise KeyboardInterrupt

    options = {"tune": 0, "draws": 300, "cores": cores, "mp_ctx": "fork"}
    whole = draws_of(sample(numba_step, **options))
    part = draws_of(sample(numba_step, **options, callback=interrupt))
    chains, draws = part["mu"].shape
    assert chains == 2
    assert draws == 200
    assert_same_bits({name: x[:, :draws] for name, x in whole.items()}, part)


def test_new_data_are_read():
    with pm.Model() as model:
        y = pm.Data("data", np.zeros(100))
        pm.Normal("y", pm.Normal("mu", 0, 10), 0.1, observed=y)
        step = sg.CoRVSGLD(step_size=2e-5, backend="jax", **UNTUNED)
    assert abs(float(sample(step, tune=10).posterior["mu"].mean())) < 0.1
    pm.set_data({"data": np.full(70, 5.0)}, model=model)
    assert abs(float(sample(step, tune=10).posterior["mu"].mean()) - 5) < 0.1


@pytest.mark.slow
def test_numba_takes_over_what_jax_cannot_run(caplog):
    with pm.Model():
        mask = pm.Data("mask", np.arange(100) % 2 == 0)
        x = pm.Normal("x", shape=100)
        pm.Normal("y", x[mask].sum(), observed=1.0)
        step = sg.SGLD(step_size=0.01, **UNTUNED)
    with caplog.at_level(logging.INFO):
        result = sample(step, tune=0)
    assert np.all(np.isfinite(result.posterior["x"]))
    assert "compiling with numba instead" in caplog.text

"""States as arrays and text."""

import io

from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytest

from pymc.stats.convergence import SamplerWarning
from pymc.step_methods.compound import BlockedStep, CompoundStep
from pymc.step_methods.state import equal_dataclass_values
from pymc.util import get_state_from_generator

import pymc_sgmcmc as sg

from helpers.steps import location, start, step_for, take
from pymc_sgmcmc.store.formats import Records, layout_of, packed, record_type, unpacked


def round_trip(value):
    return unpacked(packed(value))


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        2**70,
        0.1,
        float("inf"),
        "ψ",
        [1, [2.5, None]],
        (1, ("a", [])),
        {"a": 1, 2: (3,)},
        np.float64(0.1),
        np.float32(0.1),
        np.int16(3),
        np.bool_(True),
        np.arange(6.0).reshape(2, 3).T,
        np.array(2, dtype=np.float32),
        np.zeros((0, 3)),
    ],
    ids=repr,
)
def test_values_come_back_with_their_types(value):
    found = round_trip(value)
    assert type(found) is type(value)
    assert equal_dataclass_values(found, value)
    if isinstance(value, np.ndarray | np.generic):
        assert (found.dtype, found.shape) == (value.dtype, value.shape)


def test_generators_go_on():
    for generator in (np.random.PCG64, np.random.SFC64, np.random.MT19937, np.random.Philox):
        rng = np.random.Generator(generator(5))
        rng.spawn(2)
        rng.normal(size=3)
        found = round_trip(rng)
        assert found.normal() == rng.normal()
        assert found.spawn(1)[0].normal() == rng.spawn(1)[0].normal()
    state = get_state_from_generator(np.random.default_rng([1, 2]))
    assert equal_dataclass_values(list(round_trip(state)), list(state))


@pytest.mark.parametrize("name", ["MSGNHT"])
def test_sampling_states_come_back(name):
    step = step_for(name, location())
    point, _ = take(step, start(step))
    state = step.sampling_state
    found = round_trip(state)
    assert equal_dataclass_values(found, state)
    _, expected = take(step, point)
    step.sampling_state = found
    assert take(step, point)[1] == expected


def test_a_tuned_state_and_those_of_pymcs_steps_come_back():
    with pm.Model():
        x = pm.Normal("x", shape=3)
        z = pm.Bernoulli("z", 0.5)
        k = pm.Poisson("k", 3.0)
        step = CompoundStep(
            [sg.CoRVSGLD([x], backend="jax"), pm.BinaryMetropolis([z]), pm.Metropolis([k])]
        )
        step.setup_chain(np.random.default_rng(0), 20, 10)
        point = pm.modelcontext(None).initial_point()
        for _ in range(8):
            point, _ = step.step(point)
    state = step.sampling_state
    assert state.methods[0].chain.memory.places
    assert equal_dataclass_values(round_trip(state), state)


def test_nothing_else_is_stored_and_nothing_is_unpickled():
    with pytest.raises(TypeError, match="object"):
        packed(np.array([{}], dtype=object))
    with pytest.raises(TypeError, match="type Model cannot be stored"):
        packed([pm.Model()])

    def of_tree(text, **arrays):
        file = io.BytesIO()
        np.savez(file, tree=np.frombuffer(text, dtype=np.uint8), **arrays)
        return file.getvalue()

    with pytest.raises(KeyError, match="Popen"):
        unpacked(of_tree(b'{"of": "subprocess.Popen", "fields": {"args": ["ls"]}}'))
    with pytest.raises(ValueError, match="allow_pickle=False"):
        unpacked(of_tree(b'{"array": "0"}', **{"0": np.array([{}], dtype=object)}))


def test_statistics_that_are_no_numbers_are_refused_before_the_first_draw():
    declared = {"h": (np.float64, []), "warning": (SamplerWarning, None)}
    method = SimpleNamespace(stats_dtypes_shapes=declared)
    names = [name for name, *_ in layout_of([method], {"x": np.zeros(2)})]
    assert names == ["value x", "statistic 0 h"]
    declared["variable_inclusion"] = (object, [])
    with pytest.raises(NotImplementedError, match="'variable_inclusion', that is no number"):
        layout_of([method], {"x": np.zeros(2)})


def test_statistics_that_a_draw_lacks_are_as_in_traces_of_pymc():
    """One that is left out is 0 there, and one that is None is NaN where it can be."""
    declared = {"left": (np.float64, []), "none": (np.float64, []), "count": (np.int64, [])}
    method = SimpleNamespace(stats_dtypes_shapes=declared)
    point = {"x": np.zeros(2)}
    layout = layout_of([method], point)
    records = Records([method], layout, [])
    written = [
        records.write(k, point, [stats])
        for k, stats in enumerate([dict(left=1.0, none=2.0, count=3), dict(none=None, count=None)])
    ]
    for k, expected in enumerate([[1.0, 2.0, 3], [0.0, np.nan, 0]]):
        [record] = np.frombuffer(written[k], dtype=record_type(layout))
        _, [stats] = records.read(k, record)
        np.testing.assert_array_equal([stats[name] for name in declared], expected)


def test_a_step_method_of_ones_own_needs_a_state(tmp_path):
    """Resumed without one it would draw the same random numbers again."""

    class Exact(BlockedStep):
        def __init__(self, var, model):
            self.vars = [model.rvs_to_values[var]]

        def step(self, point):
            return point, [{}]

    with pm.Model() as model:
        mine = Exact(pm.Normal("x"), model)
        with pytest.raises(NotImplementedError, match=r"^Exact has no state .* a _state_class"):
            sg.checkpoint(mine, tmp_path, model=model)

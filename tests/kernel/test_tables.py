"""Rows in memory that all chains of a machine share."""

import multiprocessing
import os
import signal

from types import SimpleNamespace

import cloudpickle
import numpy as np
import pymc as pm
import pytest

import pymc_sgmcmc as sg

from helpers.backends import BOTH
from helpers.steps import assert_goes_on, start, step_for, take
from pymc_sgmcmc.backends.placing import ALIGNMENT, place
from pymc_sgmcmc.kernel import tables as tables_module
from pymc_sgmcmc.kernel.engine import Engine
from pymc_sgmcmc.kernel.tables import SHARED_ORDER, RowMemory, arrange
from pymc_sgmcmc.model.minibatch_checks import check_minibatches
from pymc_sgmcmc.testing import UNTUNED

FORKED = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked")


@pytest.fixture
def always_shared(monkeypatch):
    monkeypatch.setattr(tables_module, "_LARGE", 0)


def location():
    """A model of a minibatch, with next to nothing to compile."""
    with pm.Model() as model:
        y = pm.Minibatch(np.random.default_rng(0).normal(1, 0.5, size=400), batch_size=50)
        pm.Normal("y", pm.Normal("mu", 0, 10), 0.5, observed=y, total_size=400)
    return model


def step_of(model, **options):
    return sg.SGLD(model=model, step_size=1e-4, **{"backend": "jax", **UNTUNED, **options})


def memory_of(*arrays, batch_size=10):
    """Return a model's minibatch and memory for its rows."""
    with pm.Model() as model:
        drawn = pm.Minibatch(*arrays, batch_size=batch_size)
        y, *others = drawn if len(arrays) > 1 else [drawn]
        mu = pm.Normal("mu") + sum(x.sum(axis=1) for x in others)
        pm.Normal("y", mu, observed=y, total_size=len(arrays[0]))
    minibatches = check_minibatches(model)
    return model, minibatches, RowMemory(minibatches)


def test_rows_of_arrays_that_are_drawn_together_stay_together():
    rng = np.random.default_rng(1)
    y = rng.normal(size=57)
    x = np.stack([y, 2 * y, 3 * y], axis=1).astype("float32")
    _, _, memory = memory_of(y, x)

    def write(tables):
        for array, table in zip((y, x), tables, strict=True):
            arrange(array, np.random.default_rng(3), table)

    a, b = memory.tables(write)
    assert a.dtype == y.dtype
    assert b.dtype == x.dtype
    np.testing.assert_array_equal(np.sort(a[:57]), np.sort(y))
    np.testing.assert_array_equal(b[:, 1], (2 * a).astype("float32"))
    # The rows follow once more: no offset's batch ends before B rows
    np.testing.assert_array_equal(a[57:], a[: len(a) - 57])
    assert len(a) == 2 * 57
    assert not np.array_equal(a[:57], y)


@BOTH
def test_a_backend_copies_nothing(backend):
    _, _, memory = memory_of(np.arange(50.0), np.ones((50, 3)))
    tables = memory.tables(lambda tables: [table.fill(1) for table in tables])
    addresses = [table.ctypes.data for table in tables]
    assert all(address % ALIGNMENT == 0 for address in addresses)
    placed = place(tables, backend)
    if backend == "jax":
        assert [x.unsafe_buffer_pointer() for x in placed] == addresses
    else:
        assert [x.ctypes.data for x in placed] == addresses


@FORKED
@pytest.mark.parametrize("killed", [False, True])
def test_the_first_process_writes_and_a_killed_one_is_replaced(killed):
    _, _, memory = memory_of(np.arange(50.0))
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()

    def look(value, *, dies):
        def write(tables):
            tables[0][:25] = value
            if dies:
                os.kill(os.getpid(), signal.SIGKILL)
            tables[0][25:] = value
            queue.put(value)

        memory.tables(write)

    for value in (1.0, 2.0, 3.0):
        process = context.Process(
            target=look, args=(value,), kwargs={"dies": killed and value == 1.0}
        )
        process.start()
        process.join()
    # The parent sees what was written, and does not write itself
    [table] = memory.tables(lambda tables: pytest.fail("the rows were written again"))
    writer = 2.0 if killed else 1.0
    assert queue.get() == writer
    assert queue.empty()
    np.testing.assert_array_equal(table, writer)


def test_few_rows_have_an_order_of_each_chain():
    step = step_of(location())
    assert step._row_memory is None
    orders = set()
    for seed in range(3):
        start(step, seed=seed)
        orders.add(step.chain.row_order)
    assert len(orders) == 3
    assert SHARED_ORDER not in orders


def test_chains_of_many_rows_share_tables_and_differ_in_batches(always_shared):
    step = step_of(location())
    tables, batches = [], []
    for seed in (1, 2):
        step.step(start(step, seed=seed))
        assert step.chain.row_order == SHARED_ORDER
        tables.append(step._runner._feed._tables)
        state = step.chain
        drawn = step._runner._feed.drawn(state.batch_rng, 200, 1, state.batches_left)
        batches.append(np.concatenate([x[0] for x in drawn]))
    assert all(a is b for a, b in zip(*tables, strict=True))
    # Of 400 offsets, half are met by 200 of each
    assert np.mean(np.isin(batches[0], batches[1])) < 0.7


@BOTH
def test_draws_do_not_depend_on_where_the_rows_are(always_shared, backend):
    step = step_for("MSGNHT", location(), backend=backend, batch="sweep")
    _, drawn = take(step, start(step))
    # A process that is not forked unpickles the step, and lays out rows of its own in that order
    sent = cloudpickle.loads(cloudpickle.dumps(step))
    assert sent._row_memory is None
    assert take(sent, start(sent))[1] == drawn


def test_a_state_goes_on_in_another_step(always_shared):
    step = step_of(location())
    point, _ = take(step, start(step))
    assert_goes_on(step, point, lambda: step_of(step.model))


def test_the_potential_is_that_of_all_rows(always_shared):
    model = location()
    found = []
    step = step_of(model)
    at = model.initial_point()
    for memory in (step._row_memory, None):
        engine = Engine(model, model.value_vars, step.options, at, row_memory=memory)
        phi, scales = engine.express(at)
        potential = engine.potential_at(SHARED_ORDER if memory else 12345, scales, [])
        found.append(np.concatenate([x.ravel() for x in potential.full(potential.join(phi)[None])]))
    np.testing.assert_allclose(*found, rtol=1e-10)


def test_data_that_are_set_anew_are_read(always_shared):
    with pm.Model() as model:
        data = pm.Data("data", np.zeros(100))
        y = pm.Minibatch(data, batch_size=10)
        pm.Normal("y", pm.Normal("mu", 0, 10), 1, observed=y, total_size=100)
    step = step_of(model)
    for value in (5.0, 7.0):  # before there is a chain, and after one
        pm.set_data({"data": np.full(100, value)}, model=model)
        step.step(start(step))
        np.testing.assert_array_equal(np.asarray(step._runner._feed._tables[0]), value)


def test_rows_on_disk_stay_there(always_shared, tmp_path):
    np.save(tmp_path / "y.npy", np.random.default_rng(1).normal(size=1000))
    with pm.Model() as model:
        y, z = pm.Minibatch(sg.on_disk(tmp_path / "y.npy"), np.zeros(1000), batch_size=10)
        pm.Normal("y", pm.Normal("mu") + z, observed=y, total_size=1000)
    memory = RowMemory(check_minibatches(model))
    assert memory.tables(lambda tables: None) == []


def test_a_machine_without_so_much_memory(always_shared, monkeypatch):
    def refused(*_):
        raise OSError("Cannot allocate memory")

    monkeypatch.setattr(tables_module, "mmap", SimpleNamespace(mmap=refused))
    step = step_of(location())
    assert step._row_memory is None
    step.step(start(step))
    assert step.chain.row_order == SHARED_ORDER

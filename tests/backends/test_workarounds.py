"""Each workaround does what it says, and is still needed: where not, its test fails."""

import errno
import gc
import inspect
import json
import os
import re

from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pymc
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
import xarray as xr

from pymc.model.fgraph import fgraph_from_model
from pytensor.compile.mode import Mode, get_mode
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import ancestors
from pytensor.tensor.math import Dot
from scipy.sparse import csr_matrix

import pymc_sgmcmc

from helpers.results import result_of
from helpers.subprocesses import run_python
from pymc_sgmcmc.backends import workarounds
from pymc_sgmcmc.backends.compiling import compiled
from pymc_sgmcmc.model.passes import canonical


def test_they_stand_in_two_files():
    root = Path(pymc_sgmcmc.__file__).parent
    signs = r"jax\._src|enable_x64|change_flags|\bgc\.|config\.update|jax_typify|\.excluding\(\""
    found = {
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        if re.search(signs, path.read_text(encoding="utf-8"))
    }
    assert found == {"backends/workarounds.py", "backends/jax_missing.py"}


# ----------------------------------------------------------------------------- JAX

# A process of its own, as JAX starts once in a process, and PyTensor sets its precision once
PROGRAM = """
import json, os, sys, warnings
from pathlib import Path
import jax, jax.extend.backend, numpy as np, pytensor, pytensor.tensor as pt
from pymc_sgmcmc.backends.compiling import compiled
from pymc_sgmcmc.backends.workarounds import jax_is_running, run_jax_in_calling_thread
warnings.simplefilter("error")

told, order = sys.argv[1] == "told", sys.argv[2:]
found = {"running": [jax_is_running()]}
found["public"] = [n for m in (jax, jax.extend.backend) for n in vars(m) if "initialized" in n]
found["preallocated"] = []
for users in ("true", None) if told else ():
    os.environ.pop("XLA_PYTHON_CLIENT_PREALLOCATE", None)
    if users:
        os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = users
    run_jax_in_calling_thread()
    found["preallocated"].append(os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"])
y = jax.numpy.ones((800, 800))
found["running"].append(jax_is_running())
product = jax.jit(lambda x: x @ x @ x @ x)
product(y).block_until_ready()
found["ready"] = product(y).is_ready()


def sums(function):
    functions = []
    for floatX in order:
        with pytensor.config.change_flags(floatX=floatX):
            x = pt.vector("x", shape=(2,))
            functions.append(function([x], [x + x]))
    calls = zip(order, functions)
    return [str(np.asarray(f(np.ones(2, dtype=dtype))[0]).dtype) for dtype, f in calls]


found["order"] = order
found["ours"] = sums(lambda x, y: compiled(x, y, "jax"))
found["pytensors"] = sums(lambda x, y: pytensor.function(x, y, mode="JAX", trust_input=True))

events = []
jax.monitoring.register_event_listener(lambda event, **kwargs: events.append(event))


def kept():
    return set(Path(pytensor.config.compiledir).glob("jax/*-cache"))


def bits():
    del events[:]
    x = pt.vector("x", shape=(3,))
    [y] = compiled([x], [pt.exp(x) + 2], "jax")(np.arange(3.0))
    found["cache"] += [e.rsplit("/", 1)[-1] for e in events if e.endswith(("_hits", "_misses"))]
    return np.asarray(y).tobytes().hex()


def settings():
    return [
        jax.config.jax_compilation_cache_dir, jax.config.jax_persistent_cache_min_compile_time_secs
    ]


before = kept()
found["cache"] = []
found["bits"] = [bits()]
found["kept"] = len(kept() - before)
found["settings"] = [settings()]
if not told:
    # Cut off by a kill
    for path in kept():
        path.write_bytes(path.read_bytes()[:100])
    found["bits"].append(bits())
    found["settings"].append(settings())
    # A user's own cache
    for path in kept():
        path.unlink()
    own = str(Path(pytensor.config.base_compiledir, "own"))
    jax.config.update("jax_compilation_cache_dir", own)
    found["bits"].append(bits())
    found["left to a user"] = settings() == [own, 1.0] and not kept()
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def processes(tmp_path_factory):
    """What two processes find, one after the other: of the first JAX is told how to run."""
    pytest.importorskip("jax")
    env = {**os.environ, "PYTENSOR_FLAGS": f"base_compiledir={tmp_path_factory.mktemp('kept')}"}
    env.pop("XLA_PYTHON_CLIENT_PREALLOCATE", None)
    orders = {"told": ("float64", "float32"), "untold": ("float32", "float64")}
    done = [run_python(PROGRAM, name, *order, env=env) for name, order in orders.items()]
    assert [d.stderr for d in done] == ["", ""]
    return [json.loads(d.stdout) for d in done]


@pytest.mark.slow
def test_only_private_jax_says_whether_it_runs(processes):
    for found in processes:
        assert found["running"] == [False, True]
        # Needed as long as the list is empty
        assert found["public"] == []


@pytest.mark.slow
def test_jax_hands_a_call_to_another_thread_unless_told(processes):
    # Needed as long as a call that was not told returns before its result is there
    assert [found["ready"] for found in processes] == [True, False]


@pytest.mark.slow
def test_another_process_finds_what_xla_compiled(processes):
    first, second = processes
    # Needed as long as JAX keeps nothing unless told, and nothing that was compiled in a second
    assert (first["cache"], first["kept"]) == (["cache_misses"], 1)
    assert second["kept"] == 0
    # What was cut off counts as not there
    assert second["cache"] == ["cache_hits", "cache_misses"]
    assert {*first["bits"], *second["bits"]} == {first["bits"][0]}
    assert first["settings"] + second["settings"] == [[None, 1.0]] * 3


@pytest.mark.slow
def test_a_users_cache_of_jax_is_left_as_it_is(processes):
    assert processes[1]["left to a user"]


@pytest.mark.slow
def test_pytensor_sets_jaxs_precision_once(processes):
    for found in processes:
        assert found["ours"] == found["order"]
    # Needed as long as double precision is lost where single precision came first
    assert [found["pytensors"] for found in processes] == [
        ["float64", "float32"],
        ["float32", "float32"],
    ]


def test_jax_warns_of_long_integers_in_single_precision():
    jax = pytest.importorskip("jax")

    def traced():
        return jax.jit(lambda x: x.astype("int64"))(np.zeros(3, dtype="int32"))

    with jax.enable_x64(False):
        with workarounds.long_integers_allowed():
            traced()
        # Needed as long as this is so
        with pytest.warns(UserWarning, match="Explicitly requested dtype"):
            traced()


def test_a_gpu_is_asked_for_products_in_the_precision_of_the_factors():
    # Whether it would round them, and no longer needs to be asked, only a GPU can tell
    jax = pytest.importorskip("jax")
    context = workarounds.products_in_full(workarounds.jax_precision())
    for _ in range(2):
        with context():
            program = jax.jit(lambda x: x @ x).lower(np.eye(3)).as_text()
        assert "HIGHEST" in program and "f64" in program
    assert jax.config.jax_default_matmul_precision is None


def test_jax_leaves_a_gpus_memory_to_other_chains_unless_told(processes):
    assert processes[0]["preallocated"] == ["true", "false"]


def test_pytensor_looks_at_each_product_again_unless_told():
    pytest.importorskip("jax")
    x, y = pt.vectors("x", "y")

    def product(mode):
        nodes = pytensor.function([x, y], pt.diag(x) @ y, mode=mode).maker.fgraph.apply_nodes
        return any(isinstance(node.op, Dot) for node in nodes)

    # Needed as long as this is so
    assert not product("JAX")
    assert product(get_mode("JAX").excluding(*workarounds.HAD_BEFORE))
    # The gradient has no such product before it is compiled
    [gradient] = canonical([pt.grad((pt.diag(x) @ y).sum(), x)])
    assert not any(v.owner and isinstance(v.owner.op, Dot) for v in ancestors([gradient]))


# ----------------------------------------------------------------------------- PyTensor


def test_numba_may_change_the_order_of_operations_unless_told():
    # Needed as long as this is PyTensor's default
    assert pytensor.config.numba__fastmath
    with workarounds.repeatable():
        assert not pytensor.config.numba__fastmath


def test_pytensor_notes_where_a_variable_was_made():
    # Needed as long as this is PyTensor's default
    with pytensor.config.change_flags(traceback__limit=8):
        assert any(pt.exp(pt.vector("x")).tag.trace)
        with workarounds.untraced():
            assert not any(pt.exp(pt.vector("x")).tag.trace)


def test_pymc_takes_no_mode_for_the_initial_point():
    # Needed as long as this is so
    assert "mode" not in inspect.signature(pm.Model.initial_point).parameters
    with workarounds.interpreted(), pm.Model() as model:
        pm.HalfNormal("x", initval=1.0)
        assert pytensor.config.cxx == ""
        np.testing.assert_allclose(model.initial_point()["x_log__"], 0.0)


# ----------------------------------------------------------------------------- Python


def test_a_compiler_would_have_python_search_for_garbage():
    searches = []

    def count(phase, info):
        searches.append(info["generation"]) if phase == "start" else None

    def build():
        del searches[:]
        row, weights = pt.vectors("row", "weights")
        sums = pytensor.scan(
            lambda x, w: pt.exp(x).dot(w),
            sequences=[pt.outer(row, row)],
            non_sequences=[weights],
            return_updates=False,
        )
        compiled([row, weights], [pt.grad(sums[-1], weights)], "interpreter")
        return len(searches)

    assert gc.isenabled()
    gc.callbacks.append(count)
    try:
        with workarounds.uncollected():
            assert build() == 0
        assert gc.isenabled()
        # Needed as long as this is so
        assert build() > 0
    finally:
        gc.callbacks.remove(count)


def recursion(steps):
    """Some steps of an epidemic, and the slope of how many fell ill."""
    rate, state = pt.scalar("rate"), (pt.constant(990.0), pt.constant(10.0))
    ill = []
    for _ in range(steps):
        healthy, sick = state
        new = healthy * (1 - pt.exp(-rate * sick / 1000))
        state = healthy - new, 0.8 * sick + new
        ill.append(new)
    return rate, pt.grad(pt.sum(pt.stack(ill) ** 2), rate)


def times_distributed(outputs, exclude):
    """How often PyTensor tried to multiply sums out, and what it made."""
    tried = []
    kept = pytensor.tensor.rewriting.math.attempt_distribution
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            pytensor.tensor.rewriting.math,
            "attempt_distribution",
            lambda *arguments: tried.append(0) or kept(*arguments),
        )
        found = rewrite_graph(outputs, include=("canonicalize",), exclude=exclude, clone=True)
    return len(tried), found


def test_a_recursion_that_is_written_out_is_not_multiplied_out():
    _, few = recursion(5)
    assert workarounds.slow_rewrites([few]) == ()
    rate, many = recursion(20)
    assert workarounds.slow_rewrites([many]) == ("local_greedy_distributor",)
    tried, [found] = times_distributed([many], workarounds.slow_rewrites([many]))
    assert tried == 0
    as_they_are = Mode(linker="py", optimizer=None)
    values = pytensor.function([rate], [found, many], mode=as_they_are)(0.4)
    np.testing.assert_allclose(*values, rtol=1e-10)
    # It has this name still
    tried, _ = times_distributed([few], ())
    assert tried > 0


def test_initvals_of_other_names_are_refused_for_models_that_are_sampled_here():
    with pm.Model() as other:
        pm.HalfNormal("s")
    with pm.Model() as model:
        s = pm.HalfNormal("s")
        d = pm.Deterministic("d", s + 1)
    workarounds.hook_into_pymc(model, lambda model: None)

    def started(model, start):
        return pymc.initial_point.convert_str_to_rv_dict(model, start)

    # PyMC alone
    with pytest.raises(KeyError):
        started(other, {"t": 1.0})
    for wrong in ("t", "d", d, other["s"]):
        with pytest.raises(ValueError, match=r"^initvals names '[tds]', which.*Choose from 's'\.$"):
            started(model, {wrong: 1.0})
    for right in ({"s": 1.0}, {"s_log__": 0.0}, {s: 1.0}, {}):
        assert set(started(model, right)) <= {s}
    # A whole point, as of pm.find_MAP
    assert set(started(model, {"s_log__": 0.0, "s": 1.0, "d": 2.0})) == {s, d}


@pytest.mark.parametrize("error", [AssertionError(), RuntimeError("No device.\nOther words.")])
def test_a_platform_that_jax_lacks_is_named(monkeypatch, error):
    def missing():
        raise error

    import jax

    monkeypatch.setattr(jax, "devices", missing)
    with pytest.raises(RuntimeError, match=r"^JAX cannot start on .*Set JAX_PLATFORMS=cpu.*numba'"):
        workarounds.start_jax()


# ----------------------------------------------------------------------------- numba


class _Full:
    """A folder in which there is no room."""

    def save(self, key, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def load(self, key):
        return None


def test_numba_goes_on_where_it_cannot_keep_what_it_compiled(monkeypatch):
    import numba

    from numba.core import caching

    def twice():
        def double(x):
            return 2 * x

        function = numba.njit(double)
        function.enable_caching()
        monkeypatch.setattr(function._cache, "_cache_file", _Full())
        return function(2.0)

    with pytest.warns(UserWarning, match=r"cannot be kept in '.*' \(No space .* base_compiledir"):
        assert twice() == 4.0
    # Said once
    assert twice() == 4.0
    usual = inspect.unwrap(caching.Cache._guard_against_spurious_io_errors)
    assert usual.__module__ == "pymc_sgmcmc.backends.workarounds"

    @contextmanager
    def unguarded(self):
        yield

    monkeypatch.setattr(caching.Cache, "_guard_against_spurious_io_errors", unguarded)
    with pytest.raises(OSError, match="No space"):
        twice()


# ----------------------------------------------------------------------------- PyMC


def test_sparse_data_have_no_place_in_a_result():
    with pytest.raises(ValueError, match="number of dimensions"):
        xr.DataArray(csr_matrix(np.eye(3)), dims=("x_dim_0", "x_dim_1"))


def test_models_with_starts_are_not_copied():
    with pm.Model() as model:
        pm.Normal("x", initval=0.5)
    with pytest.raises(NotImplementedError, match="non-default initial_values"):
        fgraph_from_model(model)


def test_pymc_checks_no_draws_without_a_free_variable():
    draws = result_of(p=np.random.default_rng(0).normal(size=(2, 200)))
    with pm.Model() as model:
        pm.Deterministic("p", pm.Normal("x"))
    with pytest.raises(TypeError):
        workarounds._run_checks(draws, model)
    assert workarounds._checks(draws, model) == []

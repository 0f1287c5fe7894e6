"""Each workaround does what it says, and is still needed: where not, its test fails."""

import gc
import inspect
import os
import re

from pathlib import Path

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

from pymc.distributions.dist_math import SplineWrapper
from pytensor.compile.mode import Mode, get_mode
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import ancestors
from pytensor.scalar.basic import ScalarOp
from pytensor.scalar.loop import ScalarLoop
from pytensor.scalar.math import Ive, ive
from pytensor.tensor.math import Dot

import pymc_sgmcmc

from helpers.subprocesses import run_python
from pymc_sgmcmc.backends.compiling import INTERPRETER, compiled
from pymc_sgmcmc.backends.workarounds import (
    HAD_BEFORE,
    bessel_known,
    constants_copied,
    interpreted,
    jax_precision,
    long_integers_allowed,
    products_in_full,
    repeatable,
    scalar_loops_known,
    slow_rewrites,
    softplus_vectorised,
    splines_known,
    uncollected,
    untraced,
)
from pymc_sgmcmc.model.graphs import canonical


def test_they_stand_in_one_file():
    root = Path(pymc_sgmcmc.__file__).parent
    signs = r"jax\._src|enable_x64|change_flags|\bgc\.|config\.update|jax_typify|\.excluding\(\""
    found = {
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        if re.search(signs, path.read_text(encoding="utf-8"))
    }
    assert found == {"backends/workarounds.py"}


# ----------------------------------------------------------------------------- JAX


def test_only_private_jax_says_whether_it_runs():
    pytest.importorskip("jax")
    done = run_python(
        "import jax, jax.extend.backend\n"
        "from pymc_sgmcmc.backends.workarounds import jax_is_running\n"
        "names = {n for m in (jax, jax.extend.backend) for n in vars(m)}\n"
        "print(jax_is_running(), [n for n in names if 'initialized' in n])\n"
        "jax.numpy.zeros(3)\n"
        "print(jax_is_running())\n"
    )
    # Needed as long as the list is empty
    assert done.stdout.splitlines() == ["False []", "True"], done.stderr


@pytest.mark.parametrize("told", [True, False])
def test_jax_hands_a_call_to_another_thread_unless_told(told):
    pytest.importorskip("jax")
    done = run_python(
        "import jax\n"
        "from pymc_sgmcmc.backends.workarounds import run_jax_in_calling_thread\n"
        f"run_jax_in_calling_thread() if {told} else None\n"
        "x = jax.numpy.ones((800, 800))\n"
        "product = jax.jit(lambda x: x @ x @ x @ x)\n"
        "product(x).block_until_ready()\n"
        "print(product(x).is_ready())\n"
    )
    # Needed as long as a call that was not told returns before its result is there
    assert done.stdout.strip() == str(told), done.stderr


def test_pytensor_has_jax_compile_a_program_for_a_constant():
    jax = pytest.importorskip("jax")
    from pytensor.link.jax.dispatch.basic import jax_typify

    programs = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, seconds, **kwargs: programs.append(event) if "backend_compile" in event else 0
    )
    usual = jax_typify.dispatch(np.ndarray)
    with constants_copied():
        # Of shapes that nothing else has
        copied = jax_typify(np.ones((3, 1, 17)), dtype="float64")
        assert programs == []
        assert isinstance(jax_typify(np.array(2.0)), float)
    np.testing.assert_array_equal(copied, np.ones((3, 1, 17)))
    assert jax_typify.dispatch(np.ndarray) is usual
    jax_typify(np.ones((3, 1, 19)), dtype="float64")
    # Needed as long as this is so
    assert len(programs) == 1


def test_pytensors_softplus_takes_several_exponentials():
    jax = pytest.importorskip("jax")
    from pytensor.link.jax.dispatch import jax_funcify
    from pytensor.scalar import Softplus, softplus

    usual = jax_funcify.dispatch(Softplus)
    with softplus_vectorised():
        ours = jax_funcify(softplus)
    assert jax_funcify.dispatch(Softplus) is usual
    x = np.concatenate([[-np.inf, -1e3, -700, 1e3, np.inf], np.linspace(-40, 40, 10_001)])
    with jax_precision()():
        np.testing.assert_allclose(ours(x), np.logaddexp(0, x), rtol=1e-15, atol=1e-320)
    x = x.astype("float32")
    np.testing.assert_allclose(ours(x), np.logaddexp(0, x), rtol=3e-7)
    # Needed as long as it is more than one
    of_pytensor, of_ours = (
        str(jax.make_jaxpr(f)(1.0)).count("exp ") for f in (usual(softplus), ours)
    )
    assert of_ours == 1 < of_pytensor


def usual_for_jax(kind, served):
    """Return what PyTensor has for a kind of operation, which is served otherwise for a while."""
    pytest.importorskip("jax")
    from pytensor.link.jax.dispatch import jax_funcify

    usual = jax_funcify.dispatch(kind)
    with served():
        assert jax_funcify.dispatch(kind) is not usual
    assert jax_funcify.dispatch(kind) is usual
    return usual, jax_funcify.dispatch


def test_pytensor_has_no_loops_over_numbers_for_jax():
    usual, dispatch = usual_for_jax(ScalarLoop, scalar_loops_known)
    # Needed as long as it is that of all operations, which asks for a function of NumPy's
    assert usual is dispatch(ScalarOp)


def test_pytensor_has_no_bessel_functions_for_jax():
    usual, _ = usual_for_jax(Ive, bessel_known)
    # Needed as long as that asks for another package
    with pytest.raises(NotImplementedError, match="tfp"):
        usual(ive)


def test_pymc_has_no_splines_for_jax():
    usual, dispatch = usual_for_jax(SplineWrapper, splines_known)
    # Needed as long as it is that of unknown operations
    assert usual is dispatch(object)


KEPT = """
import sys, warnings
warnings.simplefilter("error")
import jax, numpy as np, pytensor.tensor as pt
from pymc_sgmcmc.backends.compiling import compiled

events = []
jax.monitoring.register_event_listener(lambda event, **kwargs: events.append(event))
if len(sys.argv) > 1:
    jax.config.update("jax_compilation_cache_dir", sys.argv[1])
x = pt.vector("x", shape=(3,))
[y] = compiled([x], [pt.exp(x) + 2], "jax")(np.arange(3.0))
print([e.rsplit("/", 1)[-1] for e in events if e.endswith(("cache_hits", "cache_misses"))])
print(np.asarray(y).tobytes().hex())
print(jax.config.jax_compilation_cache_dir, jax.config.jax_persistent_cache_min_compile_time_secs)
"""


def test_another_process_finds_what_xla_compiled(tmp_path):
    pytest.importorskip("jax")
    env = {**os.environ, "PYTENSOR_FLAGS": f"base_compiledir={tmp_path}"}
    first, second = (run_python(KEPT, env=env) for _ in range(2))
    assert (first.stderr, second.stderr) == ("", "")
    counted, bits, setting = first.stdout.splitlines()
    assert second.stdout.splitlines() == ["['cache_hits']", bits, setting]
    # Needed as long as JAX keeps nothing unless told, and nothing that was compiled in a second
    assert (counted, setting) == ("['cache_misses']", "None 1.0")
    [kept] = tmp_path.glob("*/jax/*-cache")

    # Cut off by a kill
    kept.write_bytes(kept.read_bytes()[:100])
    third = run_python(KEPT, env=env)
    assert third.stderr == ""
    assert third.stdout.splitlines()[1:] == [bits, setting]


def test_a_users_cache_of_jax_is_left_as_it_is(tmp_path):
    pytest.importorskip("jax")
    env = {**os.environ, "PYTENSOR_FLAGS": f"base_compiledir={tmp_path}"}
    done = run_python(KEPT, str(tmp_path / "own"), env=env)
    assert done.stdout.splitlines()[-1] == f"{tmp_path / 'own'} 1.0", done.stderr
    assert not list(tmp_path.glob("*/jax"))


SUM = """
import numpy as np, pytensor, pytensor.tensor as pt
from pymc_sgmcmc.backends.compiling import compiled

functions = []
for floatX in {order}:
    with pytensor.config.change_flags(floatX=floatX):
        x = pt.vector("x", shape=(2,))
        if {ours}:
            functions.append(compiled([x], [x + x], "jax"))
        else:
            functions.append(pytensor.function([x], [x + x], mode="JAX", trust_input=True))
for floatX, function in zip({order}, functions):
    print(np.asarray(function(np.ones(2, dtype=floatX))[0]).dtype)
"""


@pytest.mark.parametrize("order", [["float64", "float32"], ["float32", "float64"]])
@pytest.mark.parametrize("ours", [True, False])
def test_pytensor_sets_jaxs_precision_once(order, ours):
    pytest.importorskip("jax")
    done = run_python(SUM.format(order=order, ours=ours))
    first = order[0]
    # Needed as long as double precision is lost where single precision came first
    expected = order if ours or first == "float64" else [first, first]
    assert done.stdout.split() == expected, done.stderr


def test_jax_warns_of_long_integers_in_single_precision():
    jax = pytest.importorskip("jax")

    def traced():
        return jax.jit(lambda x: x.astype("int64"))(np.zeros(3, dtype="int32"))

    with jax.enable_x64(False):
        with long_integers_allowed():
            traced()
        # Needed as long as this is so
        with pytest.warns(UserWarning, match="Explicitly requested dtype"):
            traced()


def test_a_gpu_is_asked_for_products_in_the_precision_of_the_factors():
    # Whether it would round them, and no longer needs to be asked, only a GPU can tell
    jax = pytest.importorskip("jax")
    context = products_in_full(jax_precision())
    for _ in range(2):
        with context():
            program = jax.jit(lambda x: x @ x).lower(np.eye(3)).as_text()
        assert "HIGHEST" in program and "f64" in program
    assert jax.config.jax_default_matmul_precision is None


@pytest.mark.parametrize("users", ["", "true"])
def test_jax_leaves_a_gpus_memory_to_other_chains_unless_told(users):
    pytest.importorskip("jax")
    name = "XLA_PYTHON_CLIENT_PREALLOCATE"
    env = {key: value for key, value in os.environ.items() if key != name}
    done = run_python(
        "import os\n"
        "from pymc_sgmcmc.backends.workarounds import run_jax_in_calling_thread\n"
        f"run_jax_in_calling_thread(); print(os.environ['{name}'])",
        env={**env, **({name: users} if users else {})},
    )
    assert done.stdout.split() == [users or "false"], done.stderr


def test_pytensor_looks_at_each_product_again_unless_told():
    pytest.importorskip("jax")
    x, y = pt.vectors("x", "y")

    def product(mode):
        nodes = pytensor.function([x, y], pt.diag(x) @ y, mode=mode).maker.fgraph.apply_nodes
        return any(isinstance(node.op, Dot) for node in nodes)

    # Needed as long as this is so
    assert not product("JAX")
    assert product(get_mode("JAX").excluding(*HAD_BEFORE))
    # The gradient has no such product before it is compiled
    [gradient] = canonical([pt.grad((pt.diag(x) @ y).sum(), x)])
    assert not any(v.owner and isinstance(v.owner.op, Dot) for v in ancestors([gradient]))


# ----------------------------------------------------------------------------- PyTensor


def test_interpreted_functions_would_have_blas_and_fused_operations():
    x, y = pt.matrices("x", "y")
    graph = pt.exp(x @ y) * 2 + 1

    def operations(mode):
        return [n.op for n in pytensor.function([x, y], graph, mode=mode).maker.fgraph.toposort()]

    ours = operations(INTERPRETER)
    assert any(isinstance(op, Dot) for op in ours)
    assert not any("Composite" in str(op) or op.destroy_map for op in ours)
    # Needed as long as this is so
    usual = operations(Mode(linker="py", optimizer="fast_run"))
    assert any("Composite" in str(op) for op in usual)
    assert not any(isinstance(op, Dot) for op in usual)
    assert any(op.destroy_map for op in usual)


def test_numba_may_change_the_order_of_operations_unless_told():
    # Needed as long as this is PyTensor's default
    assert pytensor.config.numba__fastmath
    with repeatable():
        assert not pytensor.config.numba__fastmath


def test_pytensor_notes_where_a_variable_was_made():
    with untraced():
        assert not any(pt.exp(pt.vector("x")).tag.trace)
    # Needed as long as this is so
    assert any(pt.exp(pt.vector("x")).tag.trace)


def test_pymc_takes_no_mode_for_the_initial_point():
    # Needed as long as this is so
    assert "mode" not in inspect.signature(pm.Model.initial_point).parameters
    with interpreted(), pm.Model() as model:
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
        with uncollected():
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
    assert slow_rewrites([few]) == ()
    rate, many = recursion(20)
    assert slow_rewrites([many]) == ("local_greedy_distributor",)
    tried, [found] = times_distributed([many], slow_rewrites([many]))
    assert tried == 0
    np.testing.assert_allclose(found.eval({rate: 0.4}), many.eval({rate: 0.4}), rtol=1e-10)
    # It has this name still
    tried, _ = times_distributed([many], ())
    assert tried > 0

"""What JAX lacks: its values beside those of SciPy and of the interpreter, and that it lacks it."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytest

from pymc.distributions.dist_math import SplineWrapper
from pytensor.compile.mode import get_mode
from pytensor.conditional import ifelse
from pytensor.conditional.op import LazyIfElse
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import graph_rewriter
from pytensor.scalar import Softplus
from pytensor.scalar.basic import ScalarOp
from pytensor.scalar.loop import ScalarLoop
from pytensor.scalar.math import Ive
from pytensor.scalar.math import ive as ive_of_numbers
from pytensor.tensor.elemwise import Elemwise
from scipy.interpolate import InterpolatedUnivariateSpline
from scipy.special import ive

from pymc_sgmcmc.backends.compiling import compiled
from pymc_sgmcmc.backends.jax_backend import prepare
from pymc_sgmcmc.backends.jax_loop import Loop, loop
from pymc_sgmcmc.backends.jax_missing import INTRODUCED, completed, take_apart
from pymc_sgmcmc.backends.workarounds import jax_precision

jax = pytest.importorskip("jax")

# PyMC's own, of PyTensor's next version
pytestmark = pytest.mark.filterwarnings("ignore:SplineWrapper should implement:FutureWarning")


# ----------------------------------------------------------------------------- needed


def usual_for_jax(kind):
    """Return what PyTensor has for a kind of operation, which is served otherwise for a while."""
    from pytensor.link.jax.dispatch import jax_funcify

    usual = jax_funcify.dispatch(kind)
    with completed():
        assert jax_funcify.dispatch(kind) is not usual
    assert jax_funcify.dispatch(kind) is usual
    return usual, jax_funcify.dispatch


def test_pytensor_has_no_loops_over_numbers_for_jax():
    usual, dispatch = usual_for_jax(ScalarLoop)
    # Needed as long as it is that of all operations, which asks for a function of NumPy's
    assert usual is dispatch(ScalarOp)


def test_pytensor_has_no_bessel_functions_for_jax():
    usual, _ = usual_for_jax(Ive)
    # Needed as long as that asks for another package
    with pytest.raises(NotImplementedError, match="tfp"):
        usual(ive_of_numbers)


def test_pymc_has_no_splines_for_jax():
    usual, dispatch = usual_for_jax(SplineWrapper)
    # Needed as long as it is that of unknown operations
    assert usual is dispatch(object)


def test_pytensor_has_jax_compile_a_program_for_a_constant():
    from pytensor.link.jax.dispatch.basic import jax_typify

    programs = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, seconds, **kwargs: programs.append(event) if "backend_compile" in event else 0
    )
    usual = jax_typify.dispatch(np.ndarray)
    with completed():
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
    from pytensor.link.jax.dispatch import jax_funcify
    from pytensor.scalar import softplus

    usual = jax_funcify.dispatch(Softplus)
    with completed():
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


# ----------------------------------------------------------------------------- loops over numbers

RNG = np.random.default_rng(1)
SHAPES = RNG.gamma(2, 2, (2, 40)) + 0.05


def evaluated(inputs, outputs, values, backend):
    return [np.asarray(x) for x in compiled(inputs, outputs, backend)(*values)]


@pytest.mark.parametrize(
    "function, last",
    [
        # Both sides of where the series changes
        (lambda a, b, x: pt.gammainc(a, x) + b, RNG.gamma(2, 3, 40)),
        (lambda a, b, x: pt.gammaincc(a, x) + b, RNG.gamma(2, 3, 40)),
        (pt.betainc, RNG.random(40)),
    ],
)
def test_derivatives_of_incomplete_functions_are_those_of_the_interpreter(function, last):
    inputs = [pt.vector(name, shape=(40,)) for name in ("a", "b", "x")]
    gradient = pt.grad(function(*inputs).sum(), inputs)
    found, expected = (
        evaluated(inputs, gradient, [*SHAPES, last], backend) for backend in ("jax", "interpreter")
    )
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)


def test_derivatives_of_2f1_are_left_to_numba():
    inputs = [pt.vector(name, shape=(2,)) for name in "abcx"]
    gradient = pt.grad(pt.hyp2f1(*inputs).sum(), inputs[:1])
    with pytest.raises(NotImplementedError, match="Grad2F1"):
        compiled(inputs, gradient, "jax")


def looped(until=None, dtype="float64"):
    """Return x_{k + 1} = x_k / 2 + c, up to a limit or until it is near enough to 2c."""
    x, c = ps.ScalarType(dtype)("x"), ps.ScalarType(dtype)("c")
    half = np.array(0.5, dtype=dtype)
    end = None if until is None else ps.abs(x * half + c - c - c) < np.array(until, dtype=dtype)
    return Elemwise(ScalarLoop([x], [x * half + c], [c], until=end))


@pytest.mark.parametrize("steps", [0, 3, 50])
def test_elements_end_one_by_one_and_say_whether_they_did(steps):
    x, c = np.array([0.0, 1.0, 3.9, 100.0]), np.array([1.0, 0.5, 2.0, 3.0])
    values = [np.array([steps, steps, 1, steps]), x, c]
    inputs = [t(shape=(4,)) for t in (pt.lvector, pt.vector, pt.vector)]
    outputs = looped(0.3)(*inputs)
    found, expected = (evaluated(inputs, outputs, values, b) for b in ("jax", "interpreter"))
    np.testing.assert_array_equal(found[0], expected[0])
    # To make no step is no failure: PyTensor says so, but its interpreter does not
    np.testing.assert_array_equal(found[1], expected[1] | (values[0] == 0))


def test_what_is_no_number_does_not_go_on_for_all_steps():
    inputs = [t(shape=(2,)) for t in (pt.lvector, pt.vector, pt.vector)]
    values = [np.full(2, 10**9), np.array([np.nan, 0.0]), np.ones(2)]
    x, ended = evaluated(inputs, looped(1e-3)(*inputs), values, "jax")
    np.testing.assert_array_equal(np.isnan(x), [True, False])
    np.testing.assert_array_equal(ended, [False, True])


def test_without_a_condition_there_are_as_many_steps_as_asked_for():
    inputs = [pt.lvector(shape=(3,)), pt.vector(shape=(3,)), pt.scalar()]
    [x] = evaluated(inputs, [looped()(*inputs)], [np.array([0, 1, 2]), np.full(3, 8.0), 1.0], "jax")
    np.testing.assert_array_equal(x, [8.0, 5.0, 3.5])


def test_single_precision_stays_single():
    with pytensor.config.change_flags(floatX="float32"):
        inputs = [pt.lvector(shape=(2,)), pt.fvector(shape=(2,)), pt.fscalar()]
        values = [np.array([1, 2]), np.full(2, 8, "float32"), np.float32(1)]
        [x] = evaluated(inputs, [looped(dtype="float32")(*inputs)], values, "jax")
    assert x.dtype == "float32"
    np.testing.assert_array_equal(x, [5.0, 3.5])


# ----------------------------------------------------------------------------- Bessel functions

SIZES = np.concatenate([[0, 1e-300, 1e-10], np.logspace(-3, 6, 60)])


@pytest.mark.parametrize("largest", [1, 10, 50])
def test_values_and_derivatives_are_exact_on_both_sides_of_the_change(largest):
    order = np.arange(-1.0, largest + 1)[:, None]
    x = pt.vector("x", shape=(2 * len(SIZES),))
    at = np.concatenate([-SIZES[::-1], SIZES])
    function = pt.ive(order, x)
    slope = pt.grad(function.sum(), x)
    value, slope = (np.asarray(a) for a in compiled([x], [function, slope], "jax")(at))
    expected = ive(order, at)
    seen = np.abs(expected) > 1e-290
    np.testing.assert_allclose(value[seen], expected[seen], rtol=1e-12)
    np.testing.assert_allclose(value[~seen], 0, atol=1e-289)
    sides = ive(order - 1, at) + ive(order + 1, at) - 2 * np.sign(at) * expected
    # Of large x the terms cancel, and at 0 there is a kink
    np.testing.assert_allclose(
        slope[at != 0], sides.sum(axis=0)[at != 0] / 2, rtol=1e-9, atol=1e-13
    )


def test_single_precision():
    with pytensor.config.change_flags(floatX="float32"):
        x = pt.fvector("x", shape=(len(SIZES),))
        function = pt.ive(np.arange(4, dtype="float32")[:, None], x)
        [found] = compiled([x], [function], "jax")(SIZES.astype("float32"))
    expected = ive(np.arange(4)[:, None], SIZES)
    seen = expected > 1e-30
    np.testing.assert_allclose(np.asarray(found)[seen], expected[seen], rtol=2e-5)


@pytest.mark.parametrize("order", [0.5, 200, None])
def test_other_orders_are_left_to_numba(order):
    v, x = pt.vector("v", shape=(2,)), pt.vector("x", shape=(2,))
    with pytest.raises(NotImplementedError, match="ive"):
        compiled([v, x], [pt.ive(v if order is None else order, x)], "jax")


# ----------------------------------------------------------------------------- splines

POINTS = np.sort(np.random.default_rng(1).uniform(-2, 3, 12))


@pytest.mark.parametrize("ext", ["extrapolate", "zeros", "const"])
@pytest.mark.parametrize("degree", [1, 2, 3])
def test_values_and_slopes_are_scipys_inside_and_outside(degree, ext):
    spline = InterpolatedUnivariateSpline(POINTS, np.cos(POINTS), k=degree, ext=ext)
    x = pt.vector("x", shape=(101,))
    at = np.linspace(-3, 4, 101)
    outputs = [SplineWrapper(spline)(x), pt.grad(SplineWrapper(spline)(x).sum(), x)]
    value, slope = compiled([x], outputs, "jax")(at)
    np.testing.assert_allclose(value, spline(at), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(slope, spline.derivative()(at), rtol=1e-10, atol=1e-11)


def test_one_that_raises_outside_its_points_is_left_to_others():
    spline = InterpolatedUnivariateSpline(POINTS, np.cos(POINTS), ext="raise")
    x = pt.vector("x", shape=(3,))
    with pytest.raises(NotImplementedError, match="SplineWrapper"):
        compiled([x], [SplineWrapper(spline)(x)], "jax")


def test_the_density_of_an_interpolated_prior():
    with pm.Model() as model:
        pm.Interpolated("x", POINTS, np.exp(-(POINTS**2)))
    [x] = model.value_vars
    density = model.logp(sum=True)
    graphs = [density, pt.grad(density, x)]
    found, expected = (
        [float(y) for y in compiled([x], graphs, backend)(np.array(0.3))]
        for backend in ("jax", "interpreter")
    )
    np.testing.assert_allclose(found, expected, rtol=1e-12)


# ----------------------------------------------------------------------------- conditionals


def nested(wanted, x):
    """Return a value and a gradient, of which 0 wants none and 1 the gradient alone."""
    both = pt.exp(x)
    value = ifelse(pt.eq(wanted, 2), pt.sum(pt.log1p(both)), pt.zeros(()))
    return ifelse(wanted >= 1, [value, both * pt.tanh(x)], [pt.zeros(()), pt.zeros_like(x)])


def names(graph):
    return {str(getattr(node.op, "scalar_op", node.op)) for node in graph.apply_nodes}


def branches_of(graph):
    """Return the graphs of the one conditional of a graph."""
    [op] = [node.op for node in graph.apply_nodes if isinstance(node.op, LazyIfElse)]
    return op.true_branch.fgraph, op.false_branch.fgraph


def test_a_branch_holds_what_nothing_else_reads():
    wanted, x = pt.iscalar("wanted"), pt.vector("x", shape=(3,))
    fgraph = FunctionGraph([wanted, x], nested(wanted, x), clone=True)
    take_apart(fgraph)
    assert not {"exp", "tanh", "log1p"} & names(fgraph)
    taken, other = branches_of(fgraph)
    assert {"exp", "tanh"} <= names(taken) and not {"exp", "tanh"} & names(other)
    within, without = branches_of(taken)
    assert "log1p" in names(within) and not names(without) & {"log1p", "exp"}
    # What both read stays between the two
    assert "exp" not in names(within)


def test_what_is_read_outside_stays_outside():
    wanted, x = pt.iscalar("wanted"), pt.vector("x", shape=(3,))
    shared, own = pt.exp(x), pt.tanh(x)
    outputs = [ifelse(wanted, shared + own, x), shared]
    fgraph = FunctionGraph([wanted, x], outputs, clone=True)
    take_apart(fgraph)
    assert "exp" in names(fgraph)
    assert "tanh" not in names(fgraph)


def test_a_conditional_between_what_is_known_stays():
    wanted, x = pt.iscalar("wanted"), pt.vector("x", shape=(3,))
    more = x + 1
    fgraph = FunctionGraph([wanted, x], [ifelse(wanted, x, more), more], clone=True)
    take_apart(fgraph)
    assert not any(isinstance(node.op, LazyIfElse) for node in fgraph.apply_nodes)


def test_a_loop_takes_the_branch_that_is_wanted():
    prepare()
    wanted, x = pt.iscalar("wanted"), pt.vector("x", shape=(3,))
    which, points = pt.ivector("which", shape=(4,)), pt.matrix("points", shape=(4, 3))
    found = loop(nested(wanted, x), {wanted: which, x: points}, {}, {}, 4)
    function = pytensor.function([which, points], found, mode="JAX")
    [op] = [node.op for node in function.maker.fgraph.apply_nodes if isinstance(node.op, Loop)]
    taken, _ = branches_of(op.fgraph)
    assert "LazyIfElse" in names(taken)
    at = np.linspace(-2.0, 2.0, 12).reshape(4, 3)
    value, gradient = function(np.array([0, 1, 2, 1], dtype="int32"), at)
    np.testing.assert_allclose(value, [0, 0, np.sum(np.log1p(np.exp(at[2]))), 0], rtol=1e-12)
    expected = np.exp(at) * np.tanh(at)
    expected[0] = 0
    np.testing.assert_allclose(gradient, expected, rtol=1e-12)


def test_pytensor_rewrites_a_branch_from_the_beginning():
    wanted, x = pt.iscalar("wanted"), pt.vector("x", shape=(3,))

    def rewritten(mode):
        """How many graphs with what one branch computes are rewritten."""
        graphs = []

        @graph_rewriter
        def noted(fgraph):
            graphs.append("tanh" in names(fgraph))

        pytensor.function([wanted, x], nested(wanted, x), mode=mode.register((noted, 0.01)))
        return sum(graphs)

    assert rewritten(get_mode("JAX").excluding(INTRODUCED)) == 1
    # Needed as long as this is so
    assert rewritten(get_mode("JAX")) > 1

"""Models, data and starts that cannot be sampled are named early, with their cure."""

import re

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc.exceptions import SamplingError

import pymc_sgmcmc as sg

from helpers.attempts import built, cases, check, location_and_scale, sampled
from helpers.operations import Cube, NoGradient
from helpers.sampling import run
from helpers.steps import start
from pymc_sgmcmc.backends.errors import BackendError
from pymc_sgmcmc.testing import UNTUNED

X = np.random.default_rng(0).normal(size=(30, 2))
Y = X @ [1.0, -1.0]


def regression(batch_size=10, rows=30, calls=1, total_size=30):
    with pm.Model() as model:
        beta = pm.Normal("beta", shape=2)
        if calls == 1:
            x, y = pm.Minibatch(X, Y[:rows], batch_size=batch_size)
        else:
            x, y = (pm.Minibatch(array, batch_size=batch_size) for array in (X, Y))
        pm.Normal("y", x @ beta, observed=y, total_size=total_size)
    return model


def with_coords(dim, labels):
    with pm.Model(coords={dim: labels}) as model:
        pm.Normal("x", shape=2, dims=None if dim == "x_dim_0" else dim)
    return model


def without_total_size():
    with pytest.warns(UserWarning, match="total_size not provided"):
        return regression(total_size=None)


def walled():
    with pm.Model() as model:
        x = pm.Normal("x")
        pm.Potential("wall", pt.switch(x > 1, 0, -np.inf))
    return model


def censored():
    """Bounds of inf are meant: it is the start at which the log survival is -inf."""
    upper = np.array([np.inf, 4.0, np.inf, 4.0])
    with pm.Model() as model:
        lifetimes = pm.Weibull.dist(pm.HalfNormal("shape", 50), 1.0)
        pm.Censored("y", lifetimes, None, upper, observed=[1.0, 4.0, 0.9, 4.0])
    return model


def black_box():
    with pm.Model() as model:
        pm.Normal("y", Cube()(pm.Normal("x")), observed=1.0)
    return model


def masked():
    with pm.Model() as model:
        mask = pm.Data("mask", np.arange(100) % 2 == 0)
        pm.Normal("y", pm.Normal("x", shape=100)[mask].sum(), observed=1.0)
    return model


def on_a_batch():
    with pm.Model() as model:
        x, y = pm.Minibatch(X, Y, batch_size=10)
        latent = pm.Normal("latent", x[:, 0])
        pm.Normal("y", latent, observed=y, total_size=30)
    return model


def potential_on_two_minibatches():
    with pm.Model() as model:
        x, y = (pm.Minibatch(array, batch_size=10) for array in (X, Y))
        slope = pm.Normal("slope")
        pm.Potential("loss", -3 * pt.sqr(y - slope * x[:, 0]))
    return model


def pulled():
    with pm.Model() as model:
        y = pm.Minibatch(Y, batch_size=10)
        pm.Potential("pull", -3 * pt.sum((pm.Normal("x") - y) ** 2))
    return model


def walk_on_a_batch():
    with pm.Model() as model:
        y = pm.Minibatch(Y, batch_size=10)
        pm.MvNormal("y", pm.Normal("x"), np.eye(10), observed=y, total_size=30)
    return model


def gaps(kind, column=0, value=np.nan):
    """A regression with two bad rows among 200."""
    table = np.random.default_rng(2).normal(size=(200, 3))
    good = table.copy()
    table[[150, 180], column] = value
    with pm.Model() as model:
        beta = pm.Normal("beta", shape=2)
        x, y = table[:, :2].copy(), table[:, 2].copy()
        if "pm.Data" in kind:
            x = pm.Data("x", good[:, :2])
            model.set_data("x", table[:, :2])
        batched = "minibatch" in kind
        if batched:
            x, y = pm.Minibatch(x, y, batch_size=20)
        pm.Normal("y", x @ beta, 1.0, observed=y, total_size=200 if batched else None)
    return model


def of_150_labels(kind):
    """A variable of 200 entries whose dim has coords of 150."""
    y = np.zeros(200)
    with pm.Model(coords={"obs": range(150)}) as model:
        x = pm.Normal("x", shape=200, dims="obs") if kind == "free" else pm.Normal("x")
        if kind == "deterministic":
            pm.Deterministic("y", x + y, dims="obs")
        if kind == "pm.Data":
            y = pm.Data("y_data", y, dims="obs")
        if kind == "minibatch":
            y = pm.Minibatch(y, batch_size=20)
        total_size = 200 if kind == "minibatch" else None
        dims = None if kind in ("free", "deterministic") else "obs"
        name = "z" if kind == "deterministic" else "y"
        pm.Normal(name, x, observed=y, total_size=total_size, dims=dims)
    return model


def without_gradient(of):
    with pm.Model() as model:
        x = pm.Normal("x")
        pm.Normal("y", x, observed=1.0)
        pm.Normal("z", of(x), observed=1.0)
    return model


def improper(*, informed):
    with pm.Model() as model:
        a, b = pm.Flat("a"), pm.Flat("b") if informed else pm.HalfFlat("b")
        pm.Normal("y", a + b if informed else a, observed=Y)
    return model


def without_density(kind, *, batched):
    """Rows with values that their distribution cannot have, two of 200."""
    rng = np.random.default_rng(4)
    y = {"labels": rng.integers(0, 3, 200), "counts": rng.poisson(3, 200)}
    y = y.get(kind, rng.uniform(size=200)).astype("float64" if kind in SHARES else "int32")
    y[[150, 180]] = {"labels": 3, "counts": -1}.get(kind, 0)
    with pm.Model() as model:
        x = pm.Normal("x", shape=3 if kind == "labels" else ())
        seen = pm.Minibatch(y, batch_size=20) if batched else y
        how = {"observed": seen, "total_size": 200 if batched else None}
        if kind == "labels":
            pm.Categorical("y", logit_p=x, **how)
        elif kind == "counts":
            pm.Poisson("y", pt.exp(x), **how)
        elif kind == "shares":
            pm.Beta("y", 0.5, pt.exp(x), **how)  # whose log density is +inf
        else:
            pm.LogNormal("y", x, **how)
    return model


def of_another_model(*, named):
    other = location_and_scale()
    with pm.Model() as model:
        x = pm.Normal("x")
        pm.Potential("pull", -((x - (other["x"] if named else pm.Normal.dist())) ** 2))
    return model


def without_labels():
    """A variable whose length is known by its dim alone, which has no coords."""
    with pm.Model() as model:
        model.add_coord("group", length=3)
        b = pm.Normal("b", dims="group")
        pm.Normal("y", b[np.arange(30) % 3], observed=Y)
    return model


def no_groups():
    with pm.Model(coords={"group": []}) as model:
        pm.Normal("b", dims="group")
    return model


def negative_scale():
    with pm.Model() as model:
        pm.Normal("y", 0, pm.Normal("s", -1, 0.1), observed=Y)
    return model


def step_of_a_part():
    with pm.Model() as whole:
        with pm.Model(name="part"):
            x = pm.Normal("x")
            step = sg.SGLD(step_size=0.1, backend="jax", **UNTUNED)
        pm.Normal("y", x, observed=1.0)
    run(step, 10, 1, model=whole, tune=0)


SHARES = "shares", "zeros"
TUNED = {"gradient": "auto", "step_size": "auto"}

# (what is wrong, what is done, the exception, the name in its message, the cure in its message)
# fmt: off
BAD_MODELS = [
    # Coords
    *(
        (f"coords of another length: {kind}", begin(model=lambda kind=kind: of_150_labels(kind)),
         ValueError, f"'{name}' has 200 entries along the dim 'obs', whose coords have 150",
         "Give the dim coords of that length")
        for kind, name, begin in [
            ("free", "x", built),
            # Which draws may leave out
            ("deterministic", "y", sampled),
            ("array", "y", built),
            ("pm.Data", "y_data", built),
            ("minibatch", "y", built),
        ]
    ),
    *(
        (f"{kind} as coords", built(model=lambda coords=coords: with_coords(*coords)), ValueError,
         f"xarray takes no dim '{coords[0]}'", "one number or word for each entry")
        for kind, *coords in [
            ("pairs", "a", [(1, 2), (3, 4)]),
            ("arrays", "a", np.zeros((2, 2))),
            ("words and pairs", "a", ["b", (3, 4)]),
            ("a slash", "km/h", ["b", "c"]),
        ]
    ),
    ("coords of a dim that ArviZ names", built(model=lambda: with_coords("x_dim_0", [1, 2, 3])),
     ValueError, "'x' has 2 entries along the dim 'x_dim_0', whose coords have 3", "coords of th"),
    # Minibatches
    ("batch larger than the data", built(model=lambda: regression(batch_size=31)), ValueError,
     "batch_size=31", "Choose a smaller batch_size"),
    ("two minibatches in one likelihood", built(model=lambda: regression(calls=2)), ValueError,
     "'y' draws its rows from 2 pm.Minibatch calls", r"in one call: x, y = pm\.Minibatch\(x, y"),
    ("two minibatches in one potential", built(model=potential_on_two_minibatches), ValueError,
     "potential 'loss' draws its rows from 2 pm.Minibatch calls, whose rows are not aligned",
     "in one call: .* write a pm.Potential for each"),
    ("total_size missing", built(model=without_total_size), ValueError,
     "'y' uses a pm.Minibatch without", "Pass total_size="),
    ("lengths unequal", built(model=lambda: regression(rows=20)), ValueError,
     r"pm.Minibatch draws from arrays of different lengths, \[30, 20\]", "the same number of rows"),
    ("unobserved variable on a minibatch", built(model=on_a_batch), NotImplementedError,
     "unobserved variable 'latent'", "Give it the shape of the full data"),
    ("more batches than the data have", built(model=regression, batches=10**9), ValueError,
     "batches=1000000000, but the data have only 3 batches: 30 rows in batches of 10",
     "Pass at most batches=3"),
    ("batches without minibatches", built(batches=2), ValueError,
     "batches=2, but there are no minibatches", "Leave batches out"),
    # The start
    ("initvals of an unknown name", sampled(initvals={"mu": 1.0}), ValueError,
     "initvals names 'mu', which is no free variable", "Choose from 'x', 's'"),
    *(
        (f"initvals of another shape: {name}",
         sampled(model=model, initvals={name: np.zeros(shape)}), ValueError,
         f"given to '{rv}' has the shape {re.escape(str(shape))}, and the variable has {of}",
         "Pass one of that shape")
        for model, name, shape, rv, of in [
            (location_and_scale, "x", (2,), "x", r"\(\)"),
            (location_and_scale, "s_log__", (1,), "s", r"\(\)"),
            (without_labels, "b", (1,), "b", r"\(3,\)"),
            (without_labels, "b", (), "b", r"\(3,\)"),
        ]
    ),
    ("no elements along a dim", sampled(model=no_groups), ValueError, "'b' has no elements",
     "a shape without 0"),
    ("a step made for a part of the model", step_of_a_part, ValueError,
     "SGLD was made for another model than the one that is sampled", "after all variables"),
    ("initvals of an observed variable", sampled(initvals={"y": 1.0}), ValueError,
     "initvals names 'y', which is no free variable", "Choose from 'x', 's'"),
    *(
        (f"potential of {what}", built(model=lambda k=k: of_another_model(named=k)), ValueError,
         f"potential 'pull' depends on {what}", "make the potential anew")
        for k, what in [(True, "the random variable 'x'"), (False, "a random variable")]
    ),
    ("improper prior without data", sampled(model=lambda: improper(informed=0)), SamplingError,
     "'b' has an improper prior, and nothing that is observed depends on it",
     "Give it a proper prior"),
    ("operation without a gradient", sampled(model=lambda: without_gradient(NoGradient())),
     NotImplementedError,
     "log density of 'z' has no gradient: pullback not implemented for NoGradient",
     r"a method pullback.*sg\.GradientPotential.*jax_funcify"),
    ("operation with a faulty gradient",
     sampled(model=lambda: without_gradient(lambda x: pt.linalg.norm(pt.eye(2) * x, axis=1)[0])),
     NotImplementedError, "'z' has no gradient: Real.grad illegally", "GradientPotential"),
    *(
        (f"{kind} without density{' in batches' * batched}",
         sampled(model=lambda k=kind, b=batched: without_density(k, batched=b), **TUNED),
         SamplingError,
         f"'y' is infinite or NaN in 2 of 200 rows, .* row 150 with the value {value}",
         "Correct such rows or leave them out")
        for kind, value in [("labels", 3), ("counts", -1), ("zeros", r"0\.0"), ("shares", r"0\.0")]
        for batched in (False, True)
        if batched or kind in SHARES
    ),
    ("all rows without density", sampled(model=negative_scale, **TUNED), SamplingError,
     "'y' is infinite or NaN in all 30 rows, such as row 0 .* a parameter is outside its range",
     "priors within the range of the parameters"),
    ("start NaN", sampled(initvals={"x": np.array(np.nan)}), SamplingError,
     "log density of 'x' is nan", "Pass initvals="),
    ("start outside its bounds", sampled(initvals={"s": -1.0}), SamplingError,
     "log density of 's' is -inf", "Pass initvals="),
    ("potential infinite at the start", sampled(model=walled), SamplingError,
     "log density of 'wall' is -inf", "Pass initvals="),
    ("data infinite", sampled(model=lambda: location_and_scale([1.0, np.inf])), SamplingError,
     "has inf in 1 of 2 rows, row 1", "Leave these rows out, unless they are meant"),
    ("bounds infinite", sampled(model=censored), SamplingError,
     "'y' is infinite or NaN in 2 of 4 rows, the first of them row 1", "pass initvals="),
    # While sampling
    ("updates not finite", sampled(method=sg.SMLD, step_size=1e4), SamplingError,
     "stuck at draw 11: .* the variable 's' furthest out, at step size 10000",
     "Pass a smaller step_size"),
    ("Op without JAX", sampled(model=black_box), BackendError, "JAX cannot run this model: .* Cube",
     "Pass backend='numba'"),
    ("shapes that JAX cannot know", sampled(model=masked), BackendError,
     "JAX cannot run this model: Array boolean indices", r"concrete.*\. Pass backend='numba'"),
]
# fmt: on


@cases(BAD_MODELS)
def test_bad_input_is_named_with_its_cure(bad, exception, name, cure):
    check(bad, exception, name, cure)


ARRAY = r"an array of shape \(200, 2\) on which 'y' depends has NaN in 2 of 200 rows"


# Then hardly any batch has one of the rows
BY_HAND = {"step_size": 1e-3}


@pytest.mark.parametrize(
    ("kind", "column", "value", "fault", "options"),
    [
        ("constant", 0, np.nan, ARRAY, TUNED),
        ("minibatch", 0, np.nan, ARRAY, TUNED),
        ("minibatch", 0, np.nan, ARRAY, BY_HAND),
        ("pm.Data", 0, np.nan, r"pm\.Data 'x' has NaN in 2 of 200 rows", TUNED),
        ("minibatched pm.Data", 0, np.inf, r"pm\.Data 'x' has inf in 2 of 200 rows", TUNED),
        ("minibatch", 2, np.nan, "the observed array of 'y' has NaN in 2 of 200 rows", TUNED),
        ("minibatch", 2, np.inf, "the observed array of 'y' has inf in 2 of 200 rows", BY_HAND),
    ],
)
def test_data_that_are_not_finite_are_named_with_their_rows(kind, column, value, fault, options):
    cure = "pass initvals=" if np.isinf(value) else "without pm.Minibatch"
    with pytest.raises(SamplingError, match=f"^The chain cannot start: .*{fault}") as info:
        sampled(model=lambda: gaps(kind, column, value), **options)()
    assert info.match(f"the first of them row 150. Leave these rows out.*{cure}")


def test_missing_observed_values_that_pymc_imputes_are_legal():
    with pytest.warns(pm.exceptions.ImputationWarning):
        sampled(model=lambda: gaps("constant", column=2), draws=2)()


def test_missing_covariates_that_the_model_leaves_out_are_legal():
    def model():
        x = np.where(np.arange(200) % 50 == 0, np.nan, 1.0)
        with pm.Model() as model:
            x, y = pm.Minibatch(x, np.zeros(200), batch_size=20)
            seen = pt.switch(pt.isnan(x), 0.0, x)
            pm.Normal("y", pm.Normal("b") * seen, observed=y, total_size=200)
        return model

    sampled(model=model, step_size=1e-3, draws=2)()


@pytest.mark.parametrize("backend", ["auto", "jax", "numba"])
@pytest.mark.filterwarnings("ignore:The potential 'pull' depends on a pm.Minibatch")
def test_a_potential_that_is_no_sum_over_rows_is_told_as_that(backend, caplog):
    why = (
        r"^The potential 'pull' has, of a batch, a log density of shape \(\), not one entry "
        "for each of the 10 rows"
    )
    with pytest.raises(NotImplementedError, match=why) as info:
        sampled(model=pulled, step_size="auto", backend=backend)()
    info.match(r"vector with one entry for each row.*observed pm\.CustomDist with total_size=")
    assert "JAX cannot run" not in caplog.text


@pytest.mark.parametrize("fault", [ValueError, TypeError, AttributeError, IndexError])
def test_a_fault_of_our_own_does_not_pass_for_one_of_jax(fault, monkeypatch, caplog):
    def broken(engine, state):
        raise fault("a check of our own")

    monkeypatch.setattr("pymc_sgmcmc.tuning.job.Runner", broken)
    with pytest.raises(fault, match=r"^a check of our own$"):
        sampled(model=lambda: location_and_scale([1.0, 2.0]), step_size="auto", backend="auto")()
    assert "numba" not in caplog.text


def test_rows_of_a_batch_that_depend_on_each_other_are_told_as_that():
    with pytest.raises(NotImplementedError, match=r"^The variable 'y'") as info:
        sampled(model=walk_on_a_batch, step_size="auto")()
    info.match("leave pm.Minibatch, or batch_size=, out")


def test_more_batches_than_the_data_have_once_they_are_set_anew():
    with pm.Model() as model:
        data = pm.Data("data", np.zeros(100))
        y = pm.Minibatch(data, batch_size=10)
        pm.Normal("y", pm.Normal("x"), observed=y, total_size=[data.shape[0]])
    step = sg.SGLD(model=model, backend="jax", **{**UNTUNED, "batches": 6}, step_size=0.01)
    step.step(start(step, 0, 1))
    model.set_data("data", np.zeros(50))
    with pytest.raises(ValueError, match=r"batches=6, but the data have only 5 batches"):
        start(step, 0, 1)


def test_rows_without_density_are_named_where_nothing_is_tuned(caplog):
    with caplog.at_level("WARNING", "pymc.sgmcmc"):
        sampled(model=lambda: without_density("zeros", batched=True), step_size=1e-3)()
    untested, text = [
        record.getMessage() for record in caplog.records if record.name == "pymc.sgmcmc"
    ]
    assert "independent could not be tested" in untested
    assert "'y' is infinite or NaN in 2 of 200 rows, the first of them row 150" in text


def test_improper_priors_are_named_where_tuning_fails_or_warns(caplog):
    told = ""
    try:
        sampled(model=lambda: improper(informed=1), **TUNED, scale="auto")()
    except SamplingError as error:
        told = str(error)
    assert "the improper prior of a, b, pm.Flat or pm.HalfFlat, leaves no" in told + caplog.text

"""Likelihoods that are known by an estimate of their gradient alone.

The user's graph stands in the model as an operation that nothing can run. Reading the model puts
a term in its place whose value is 0 and whose gradient is the estimate, so that nothing else has
to know of it: maps of variables, minibatches, temperatures and samplers work as on any term.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from inspect import signature
from operator import index
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt

from pymc.data import MinibatchOp
from pytensor.gradient import disconnected_grad
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.graph.traversal import apply_ancestors
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.checks import a_function, a_model, of_class, positive_int
from pymc_sgmcmc.model.graphs import nodes_of, substitute
from pymc_sgmcmc.model.minibatch import find_minibatches
from pymc_sgmcmc.model.minibatch_checks import without_total_size

_ONLY_HERE = (
    "A GradientPotential has no value, only an estimate of its gradient: it can be sampled by the "
    "step methods of pymc_sgmcmc alone, and has no log density to compute."
)


class _Placeholder(Op):
    """Stands in a model for what only reading it replaces."""

    def perform(self, node: Apply, inputs: Any, output_storage: Any) -> None:
        raise NotImplementedError(_ONLY_HERE)


class _Term(TensorVariable):
    """A number without a value, of which PyMC's drawings of a model ask the shape."""

    @property
    def shape(self) -> Any:
        """Return the shape, for which nothing is run."""
        return pt.constant(np.zeros(0, dtype="int64"))


class _OwnGradient(_Placeholder):
    """A term with a known gradient only; its inputs are ``count`` variables, then estimates.

    These are scaled to ``total_size`` rows, None without a minibatch.
    """

    __props__ = ("count", "total_size")
    scales_with_data = True

    def __init__(self, count: int, total_size: int | None) -> None:
        self.count, self.total_size = count, total_size

    def make_node(self, *inputs: Any) -> Apply:
        return Apply(self, [pt.as_tensor(x) for x in inputs], [_Term(pt.scalar().type, None)])


class _Request(_Placeholder):
    """Random numbers that each update draws anew."""

    __props__ = ("kind", "shape", "number")

    def __init__(self, kind: str, shape: tuple[int, ...], number: int) -> None:
        self.kind = kind
        self.shape = shape
        self.number = number

    def make_node(self, *inputs: Any) -> Apply:
        return Apply(self, [], [pt.tensor(dtype=pytensor.config.floatX, shape=self.shape)])


class LikelihoodNoise:
    """Random numbers of any shape for an estimate of a gradient, fresh at every update."""

    def __init__(self) -> None:
        self._count = 0

    def _request(self, kind: str, shape: Any) -> TensorVariable:
        try:
            sizes = tuple(map(index, shape if isinstance(shape, Iterable) else [shape]))
        except TypeError:
            sizes = (-1,)
        if min(sizes, default=0) < 0:
            raise TypeError(
                f"noise.{kind} needs a shape of integers that are known, such as y.type.shape, got "
                f"{shape!r:.80}."
            )
        self._count += 1
        requested: Any = _Request(kind, sizes, self._count)()
        return requested

    def normal(self, shape: Sequence[int]) -> TensorVariable:
        """Return independent standard normal variables."""
        return self._request("normal", shape)

    def uniform(self, shape: Sequence[int]) -> TensorVariable:
        """Return independent variables, uniform on [0, 1)."""
        return self._request("uniform", shape)

    def exponential(self, shape: Sequence[int]) -> TensorVariable:
        """Return independent standard exponential variables."""
        return self._request("exponential", shape)


def GradientPotential(
    name: str,
    gradient: Callable[..., Any],
    variables: Sequence[TensorVariable],
    rows: Sequence[Any] = (),
    *,
    total_size: int | None = None,
) -> TensorVariable:
    r"""Add a term to the model's log density that is known by an estimate of its gradient.

    It serves likelihoods with latent variables z in each row, such as those of topic models and
    belief nets. With z drawn given the rows and θ, Fisher's identity says

    .. math:: \nabla_\theta \log p(y \mid \theta)
       = E\,[\nabla_\theta \log p(y, z \mid \theta) \mid y, \theta],

    so that one draw of z, or a few sweeps of a Gibbs sampler, gives an estimate of the gradient
    where the likelihood itself cannot be computed.

    Parameters
    ----------
    name : str
        Name of the term.
    gradient : callable
        ``gradient(*variables, *rows, noise)`` returns for each variable a symbolic estimate of
        :math:`\nabla_\theta \log p(\text{rows} \mid \theta)`, shaped as the variable; for a single
        variable it may be the estimate itself. ``noise`` has the methods ``normal(shape)``,
        ``uniform(shape)`` and ``exponential(shape)``, of any shape.
    variables : sequence of TensorVariable
        The model's variables on which the term depends.
    rows : sequence of tensor_like
        Data, as drawn by one ``pm.Minibatch`` or whole.
    total_size : int, optional
        Rows of the full data, where ``rows`` are a minibatch.

    Returns
    -------
    TensorVariable
        The term, as :func:`pymc.Potential` returns it.

    Raises
    ------
    ValueError
        If an estimate has not the shape of its variable, if there are more or fewer of them than
        variables, if ``total_size`` is missing, superfluous or no number of rows, or if a loop
        draws rows or random numbers itself in place of being handed them.
    TypeError
        If an argument is of another kind, or an estimate not of a floating dtype.

    Notes
    -----
    The step size cannot be tuned where no density is known: pass ``step_size`` to the step method,
    which warns if ``total_size`` is not the number of rows that the minibatch draws from.
    The statistic ``batch_logp`` leaves the term out.

    Examples
    --------
    Of :math:`y_i \sim N(z_i, 1)`, :math:`z_i \sim N(\theta, 1)` with z drawn given y:

    >>> import numpy as np
    >>> import pymc as pm
    >>> def estimate(theta, y, noise):
    ...     z = (y + theta) / 2 + noise.normal(y.type.shape) / np.sqrt(2)
    ...     return (z - theta).sum()
    >>> with pm.Model() as model:
    ...     y = pm.Minibatch(np.arange(100.0), batch_size=10)
    ...     theta = pm.Normal("theta", 0, 10)
    ...     likelihood = GradientPotential("y", estimate, [theta], [y], total_size=100)
    """
    a_model(None)
    of_class(str)("name", name)
    a_function("gradient", gradient)
    if total_size is not None:
        positive_int("total_size", total_size, usual=100)
    lists = ("variables", variables, Variable, "[theta]"), ("rows", rows, object, "[y]")
    for argument, given, kind, usual in lists:
        if not isinstance(given, list | tuple) or not all(isinstance(x, kind) for x in given):
            raise TypeError(f"{argument} must be a list such as {usual}, got {given!r:.80}.")
    data = _as_tensors("rows must hold arrays", rows)
    what = f"The gradient of the GradientPotential '{name}'"
    try:
        signature(gradient).bind(*variables, *data, LikelihoodNoise())
    except TypeError as error:
        raise TypeError(
            f"{what} is called with {len(variables)} variables, {len(data)} arrays of rows and the "
            f"noise, and takes others: {error}."
        ) from None
    returned = gradient(*variables, *data, LikelihoodNoise())
    returned = returned if isinstance(returned, list | tuple) else [returned]
    estimates = _as_tensors(f"{what} must return a tensor for each variable", returned)
    if len(estimates) != len(variables):
        raise ValueError(
            f"{what} returned {len(estimates)} estimates for {len(variables)} variables. Return "
            "one for each, in the order of `variables`."
        )
    for variable, estimate in zip(variables, estimates, strict=True):
        _check(f"{what} for '{variable.name}'", variable.type.shape, estimate)
    if _inside_loops(estimates, _Request | MinibatchOp):
        raise ValueError(
            f"{what} has a loop (pytensor.scan) that reads rows or random numbers from around it, "
            "and would draw them anew in every iteration. Hand it the rows as non_sequences, and "
            "random numbers as sequences."
        )
    estimates = _of_all_rows(f"The GradientPotential '{name}'", estimates, data, total_size)
    term: Any = _OwnGradient(len(variables), total_size)(*variables, *estimates)
    return pm.Potential(name, term)


def _as_tensors(what: str, given: Iterable[Any]) -> list[TensorVariable]:
    try:
        return [pt.as_tensor(x) for x in given]
    except (NotImplementedError, TypeError, ValueError):
        raise TypeError(f"{what}, got {given!r:.80}.") from None


def _check(what: str, shape: tuple[int | None, ...], estimate: TensorVariable) -> None:
    own = estimate.type.shape
    differ = len(shape) != len(own) or any(
        a != b for a, b in zip(shape, own, strict=True) if None not in (a, b)
    )
    if differ:
        raise ValueError(
            f"{what} has shape {own}, and the variable {shape}. Return the sum over the rows, "
            "shaped as the variable."
        )
    if estimate.dtype not in ("float64", "float32", "float16"):
        raise TypeError(
            f"{what} has the dtype {estimate.dtype}. Return floats: "
            f".astype('{pytensor.config.floatX}')."
        )


def _of_all_rows(
    what: str, estimates: list[Any], rows: Sequence[TensorVariable], total_size: int | None
) -> list[Any]:
    """Scale estimates from a minibatch to ``total_size`` rows."""
    # The function may read a batch from around it
    minibatch = next(iter(find_minibatches([*rows, *estimates])), None)
    if minibatch is None and total_size is None:
        return estimates
    if minibatch is None:
        raise ValueError(
            f"{what} has total_size={total_size}, but its rows are no pm.Minibatch. Leave "
            "total_size out, or draw the rows by pm.Minibatch."
        )
    if total_size is None:
        raise ValueError(without_total_size(what))
    share = total_size / minibatch.batch_size
    return [g * np.asarray(share, dtype=g.dtype) for g in estimates]


def has_own_gradient(graphs: Sequence[Variable]) -> bool:
    """Return whether a term has a known gradient only."""
    return bool(nodes_of(graphs, _OwnGradient))


def own_gradients(
    graphs: Sequence[TensorVariable],
) -> tuple[list[TensorVariable], dict[TensorVariable, str]]:
    """Replace placeholders by their terms, and random numbers by inputs, with their kinds."""
    terms: dict[Variable, Variable] = {}
    for node in nodes_of(graphs, _OwnGradient):
        variables, estimates = node.inputs[: node.op.count], node.inputs[node.op.count :]
        slopes = [
            pt.sum(disconnected_grad(g) * (x - disconnected_grad(x)))
            for x, g in zip(variables, estimates, strict=True)
        ]
        terms[node.outputs[0]] = pt.add(*slopes, 0.0).astype(node.outputs[0].dtype)
    if not terms:
        return list(graphs), {}
    noise: dict[TensorVariable, str] = {}
    symbols: dict[Variable, Variable] = {}
    for i, node in enumerate(nodes_of(graphs, _Request)):
        symbol = pt.tensor(f"noise_{i}", dtype=node.outputs[0].dtype, shape=node.op.shape)
        noise[symbol] = node.op.kind
        symbols[node.outputs[0]] = symbol
    return substitute(substitute(graphs, terms), symbols), noise


def _inside_loops(graphs: Sequence[Variable], kinds: Any) -> bool:
    """Whether operations of these classes stand in loops and other operations of a graph."""
    inner = [getattr(node.op, "fgraph", None) for node in apply_ancestors(graphs)]
    outputs = [graph.outputs for graph in inner if graph is not None]
    return any(bool(nodes_of(x, kinds)) or _inside_loops(x, kinds) for x in outputs)

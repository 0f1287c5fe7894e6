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
from pytensor.graph.traversal import ancestors
from pytensor.tensor.variable import TensorVariable

from pymc_sgmcmc.checks import a_function, a_model, of_class, positive_int
from pymc_sgmcmc.model.graphs import substitute
from pymc_sgmcmc.model.minibatch import check_total_size, evaluate, find_minibatches

__all__ = ["GradientPotential", "LikelihoodNoise", "has_own_gradient", "own_gradients"]

_ONLY_HERE = (
    "A GradientPotential has no value, only an estimate of its gradient: it can be sampled by the "
    "step methods of pymc_sgmcmc alone, and has no log density to compute."
)


class _OwnGradient(Op):
    """Placeholder in a model for a term with a known gradient only."""

    __props__ = ("count",)
    scales_with_data = True

    def __init__(self, count: int) -> None:
        self.count = count

    def make_node(self, *inputs: Any) -> Apply:
        return Apply(self, [pt.as_tensor(x) for x in inputs], [pt.scalar()])

    def perform(self, node: Apply, inputs: Any, output_storage: Any) -> None:
        raise NotImplementedError(_ONLY_HERE)


class _Request(Op):
    """Placeholder in a model for random numbers that each update draws anew."""

    __props__ = ("kind", "shape", "number")

    def __init__(self, kind: str, shape: tuple[int, ...], number: int) -> None:
        self.kind = kind
        self.shape = shape
        self.number = number

    def make_node(self, *inputs: Any) -> Apply:
        return Apply(self, [], [pt.tensor(dtype=pytensor.config.floatX, shape=self.shape)])

    def perform(self, node: Apply, inputs: Any, output_storage: Any) -> None:
        raise NotImplementedError(_ONLY_HERE)


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

    Warns
    -----
    UserWarning
        If ``total_size`` is not the number of rows that the minibatch draws from.

    Notes
    -----
    The step size cannot be tuned where no density is known: pass ``step_size`` to the step method.
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
    for what, given, kind, usual in lists:
        if not isinstance(given, list | tuple) or not all(isinstance(x, kind) for x in given):
            raise TypeError(f"{what} must be a list such as {usual}, got {given!r:.80}.")
    data = _as_tensors("rows must hold arrays", rows)
    try:
        signature(gradient).bind(*variables, *data, LikelihoodNoise())
    except TypeError as error:
        raise TypeError(
            f"The gradient of the GradientPotential '{name}' is called with {len(variables)} "
            f"variables, {len(data)} arrays of rows and the noise, and takes others: {error}."
        ) from None
    found = gradient(*variables, *data, LikelihoodNoise())
    estimates = _as_tensors(
        f"The gradient of the GradientPotential '{name}' must return a tensor for each variable",
        found if isinstance(found, list | tuple) else [found],
    )
    if len(estimates) != len(variables):
        raise ValueError(
            f"The gradient of the GradientPotential '{name}' returned {len(estimates)} estimates "
            f"for {len(variables)} variables. Return one for each, in the order of `variables`."
        )
    for variable, estimate in zip(variables, estimates, strict=True):
        _check(name, variable, estimate)
    if any(isinstance(node.op, _Request | MinibatchOp) for node in _inner_nodes(estimates)):
        raise ValueError(
            f"The gradient of the GradientPotential '{name}' has a loop (pytensor.scan) that reads "
            "rows or random numbers from around it, and would draw them anew in every iteration. "
            "Hand it the rows as non_sequences, and random numbers as sequences."
        )
    minibatched = bool(find_minibatches(data))
    if minibatched and total_size is None:
        raise ValueError(
            f"The GradientPotential '{name}' uses a pm.Minibatch without the size of the full "
            "data, so that its likelihood would count one batch only. Pass "
            "total_size=<number of rows> to it."
        )
    if total_size is not None and not minibatched:
        raise ValueError(
            f"The GradientPotential '{name}' has total_size={total_size}, but its rows are no "
            "pm.Minibatch. Leave total_size out, or draw the rows by pm.Minibatch."
        )
    if total_size is not None:
        minibatch = find_minibatches(data)[0]
        rows_of_all = len(evaluate(minibatch.sources[0]))
        check_total_size(f"The GradientPotential '{name}'", total_size, rows_of_all)
        size = minibatch.batch_size
        estimates = [g * np.asarray(total_size / size, dtype=g.dtype) for g in estimates]
    term: Any = _OwnGradient(len(variables))(*variables, *estimates)
    potential: TensorVariable = pm.Potential(name, term)
    return potential


def _as_tensors(what: str, found: Iterable[Any]) -> list[TensorVariable]:
    try:
        return [pt.as_tensor(x) for x in found]
    except (NotImplementedError, TypeError, ValueError):
        raise TypeError(f"{what}, got {found!r:.80}.") from None


def _check(name: str, variable: TensorVariable, estimate: TensorVariable) -> None:
    shapes = variable.type.shape, estimate.type.shape
    differ = len(shapes[0]) != len(shapes[1]) or any(
        a != b for a, b in zip(*shapes, strict=True) if a is not None and b is not None
    )
    if differ:
        raise ValueError(
            f"The gradient of the GradientPotential '{name}' for '{variable.name}' has shape "
            f"{shapes[1]}, and the variable {shapes[0]}. Return the sum over the rows, shaped as "
            "the variable."
        )
    if estimate.dtype not in ("float64", "float32", "float16"):
        raise TypeError(
            f"The gradient of the GradientPotential '{name}' for '{variable.name}' has the dtype "
            f"{estimate.dtype}. Return floats: .astype('{pytensor.config.floatX}')."
        )


def has_own_gradient(graphs: Sequence[Variable]) -> bool:
    """Return whether a term has a known gradient only."""
    return bool(_nodes(graphs, _OwnGradient))


def own_gradients(
    graphs: Sequence[TensorVariable],
) -> tuple[list[TensorVariable], dict[TensorVariable, str]]:
    """Replace placeholders by their terms, and random numbers by inputs, with their kinds."""
    noise: dict[TensorVariable, str] = {}
    replacements: dict[Variable, Variable] = {}
    for i, node in enumerate(_nodes(graphs, _Request)):
        symbol = pt.tensor(f"noise_{i}", dtype=node.outputs[0].dtype, shape=node.op.shape)
        noise[symbol] = node.op.kind
        replacements[node.outputs[0]] = symbol
    terms: dict[Variable, Variable] = {}
    for node in _nodes(graphs, _OwnGradient):
        variables, estimates = node.inputs[: node.op.count], node.inputs[node.op.count :]
        term = pt.add(
            *[
                pt.sum(disconnected_grad(g) * (x - disconnected_grad(x)))
                for x, g in zip(variables, estimates, strict=True)
            ],
            0.0,
        )
        terms[node.outputs[0]] = term.astype(node.outputs[0].dtype)
    if not terms:
        return list(graphs), noise
    return substitute(substitute(graphs, terms), replacements), noise


def _inner_nodes(graphs: Sequence[Variable]) -> list[Any]:
    """List the operations of a graph, inside loops and other operations too."""
    found: list[Any] = []
    for variable in ancestors(list(graphs)):
        inner = getattr(getattr(variable.owner, "op", None), "fgraph", None)
        if inner is not None:
            found += [*inner.apply_nodes, *_inner_nodes(inner.outputs)]
    return found


def _nodes(graphs: Sequence[Variable], op: type[Op]) -> list[Any]:
    found: dict[Any, None] = {}
    for variable in ancestors(list(graphs)):
        if variable.owner is not None and isinstance(variable.owner.op, op):
            found[variable.owner] = None
    return list(found)

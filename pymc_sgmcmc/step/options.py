"""What the docstring and the signature of every step method say: arguments and statistics."""

from __future__ import annotations

from inspect import Parameter, Signature, cleandoc, signature
from textwrap import dedent

_OPTIONS = """\
    vars : variable or list of variables, optional
        The variables to sample; all continuous free variables by default.
    step_size : "auto", float or callable, default "auto"
        Step size h in the whitened coordinates, or a schedule such as
        :class:`~pymc_sgmcmc.polynomial`. Its unit is a squared length for Langevin methods and a
        length for methods with a momentum.
    thin : "auto" or int, default "auto"
        Updates for each recorded draw. "auto" takes 20, more where the chain mixes slowly or for a
        neural net, and fewer for factorisations, whose updates average many batches.
    gradient : {"auto", "plain"}, ControlVariates or SVRG, default "auto"
        How the gradient is estimated from a batch. "auto" measures whether control variates have
        less noise.
    batches : "auto" or int, default "auto"
        How many batches are averaged for an update. "auto" chooses by the measured noise.
    batch : {"shuffled", "random", "sweep", "symmetric"}, default "shuffled"
        How the rows of a batch are drawn: contiguous blocks of once-permuted rows at random
        offsets; indices with replacement; sweeps that visit each block once, in random order;
        sweeps each followed by the same one backwards. Where the gradient is that of all rows it
        says nothing.
    batch_size : "auto", int or None, default "auto"
        Rows in a batch of a model without ``pm.Minibatch``. "auto" draws batches where the rows are
        independent and many, so that a pass over all of them takes much longer than an update
        besides, and else takes all rows; by the numbers that a row's log density computes, not by
        a clock, so that the same seed gives the same draws. If nothing is left to tuning, "auto"
        takes all rows without ``batch_dim``: pass a number for batches. None takes all rows.
        Where batches are drawn, draws leave deterministics of all rows out, unless ``var_names``
        has them.
    batch_dim : str or dict, optional
        The dim of the rows, or observed variables, or their names, and their axes of rows, such
        as ``{"y": 0}``; by default the longest axis of an observed variable or potential with
        ``batch_size="auto"``, and with a number the first that all observed variables share. Of
        each array and observed variable along it an update reads ``batch_size`` rows, the same of
        all, and the likelihood counts as that of the full data. The same holds for arrays without
        dims that have as many entries on one axis. The model itself is left as it is.
    transforms : {"lipschitz", "model", "mirror"} or dict, optional
        Coordinates of bounded variables: Lipschitz maps (softplus in place of exp),
        PyMC's own, mirror maps, or a dict of variables, or their names, to transforms. By default,
        and for variables that the dict does not name, the method's own. With Lipschitz and mirror
        maps simplexes and sparse gamma variables are masses, unless ``scale`` is given by hand, and
        a variable that the model gives no transform has the usual one of its distribution.
    centring : "auto" or None, default "auto"
        "auto" samples each element of a hierarchy in coordinates between the centred and the
        non-centred form; None samples the model as it is written.
    scale : {"auto", "dense", "diagonal"}, None, dict or callable, default "auto"
        Whitening. "auto" is dense up to 512 dimensions, else diagonal but for a few directions;
        "dense" is the sds alone above 512 dimensions, or where no matrix is found;
        None leaves the coordinates as they are; a dict gives variables, or their names, scales,
        positive arrays with the shape of the unconstrained coordinates, or numbers (1 for others).
        A callable takes the root L, shape (d, d), of the Gaussian N(m, LL') that tuning fitted to
        the unconstrained coordinates, and returns the root R to whiten by: a matrix, of which only
        RR' counts, or scales, shape (d,). With more than 512 dimensions, and where no matrix was
        found, L is the Gaussian's sds, shape (d,), and so must R be. Two shared directions and
        sds for what they leave::

            def two_directions(root):
                if root.ndim == 1:
                    return root
                sds = np.sqrt((root**2).sum(axis=1))
                axes, lengths, _ = np.linalg.svd(root / sds[:, None])
                shared = axes[:, :2] * lengths[:2]
                own = 1 - (shared**2).sum(axis=1)
                return sds[:, None] * np.linalg.cholesky(shared @ shared.T + np.diag(own))
    temperature : float, default 1.0
        T; prior and likelihood are raised to the power 1/T. 1 is the posterior.
    backend : {"auto", "jax", "numba"}, default "auto"
        "auto" takes JAX where it is installed and has every Op of the model.
    compile_kwargs : dict, optional
        Further arguments for :func:`pymc.compile`.
    model : pymc.Model, optional
        Taken from the context by default.
    rng, initial_point, blocked : optional
        As in every PyMC step method.
"""


_RAISES = """\
    ValueError, TypeError
        If an argument is outside its range or names a variable that is not sampled.
    NotImplementedError
        If the model has what cannot be sampled, such as unobserved variables on a minibatch.
    ImportError
        If JAX is asked for and not installed.
    RuntimeError
        While sampling: if JAX cannot start, or was already running where the process was forked.
    pymc.exceptions.SamplingError
        While sampling: if the density is not finite at the start, or if updates stay
        non-finite.
"""


_STATISTICS = """\
    Notes
    -----
    Statistics of each draw: ``step_size`` (of its last update), ``thin`` (its updates),
    ``batches`` (averaged for one gradient), ``batch_size`` (rows of one, 0 where the model has no
    batches), ``weight`` (the sum of its step sizes),
    ``batch_logp`` (log density estimated from a fresh batch), ``grad_norm`` (Euclidean norm of
    the gradient in whitened coordinates, from the fresh batches of one update),
    ``config_temperature`` (mean over coordinates of ψ_i ĝ_i,
    on average 1 under the exact law), ``noise_ratio`` (relative widening of the variances by
    gradient noise, from two fresh batches), ``rejected_updates`` (updates that were not
    finite, for which the state was kept), ``diverging`` (whether there were any),
    ``tamed_updates`` (updates in which a bound on the gradient or on a move acted) and
    ``warning`` (which PyMC logs when the chain ends and keeps out of the result). Rejected and
    tamed updates include those that a cyclical schedule leaves out before the draw.

    Statistics of each variable, as of one that is called x: ``config_temperature[x]`` (the mean
    over the directions along which it varies, each by its share of the variance; after the
    burn-in), ``noise[x]`` (the largest variance of its gradients that tuning found, over what it
    allows; with batches) and ``centring[x]`` (the mean of :attr:`centring_weights`, for a variable
    whose law depends on another one).
"""


def with_options(doc: str | None) -> str | None:
    """Write what all methods share for <options>, <raises> and <statistics> in a docstring."""
    if doc is None:
        return None
    # Python 3.13 strips the indentation of docstrings, 3.12 does not
    doc = cleandoc(doc).replace("<options>", dedent(_OPTIONS).strip())
    doc = doc.replace("<raises>", dedent(_RAISES).strip())
    return doc.replace("<statistics>", dedent(_STATISTICS).strip())


def signature_of(method: type) -> Signature:
    """Return what help() shows: a method's own arguments, then those that all methods have.

    PyMC's ``__new__`` would hide them all, and ``**options`` those of the base class.
    """
    named: dict[str, Parameter] = {}
    for cls in method.__mro__:
        if "__init__" in vars(cls):
            _, *parameters = signature(vars(cls)["__init__"]).parameters.values()
            named |= {p.name: p for p in parameters if p.name not in named}
    kept = [p for p in named.values() if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    return Signature(sorted(kept, key=lambda p: p.kind))

"""Latent Dirichlet allocation: a gradient from Gibbs sweeps, perplexity, a sampler to compare with.

A document d has proportions of topics, Dirichlet(α) of K, and each of its words has a topic z,
drawn from them. Topic k has probabilities π_k of the words. The proportions are integrated out, and
the topics are not: semi-collapsed. ``gradient`` is for :func:`pymc_sgmcmc.GradientPotential`.
``deep_units`` draws the hidden units of deep Poisson factor analysis.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numba
import numpy as np
import pytensor
import pytensor.tensor as pt

from pytensor.tensor.variable import TensorVariable


class Corpus(NamedTuple):
    """Documents in parts. ``words`` of each part have the shape (documents, length); -1 pads."""

    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray
    size: int


def padded(doc: np.ndarray, word: np.ndarray) -> np.ndarray:
    """Return the words of each document, one document a row, -1 where it has ended."""
    order = np.argsort(doc, kind="stable")
    _, row, count = np.unique(doc[order], return_inverse=True, return_counts=True)
    column = np.arange(len(doc)) - np.repeat(np.cumsum(count) - count, count)
    words = np.full((len(count), count.max()), -1)
    words[row, column] = word[order]
    return words


def corpus(
    doc: np.ndarray, word: np.ndarray, *, length: int = 60, least: int = 10, seed: int = 0
) -> Corpus:
    """Cut texts into documents of at most ``length`` words, and those into random parts.

    70 % are for training, 15 % each for the choice of step sizes and for the test. Words seen less
    than ``least`` times are left out. The pieces of a text are spread over all parts.
    """
    kept = np.bincount(word)[word] >= least
    doc, (vocabulary, word) = doc[kept], np.unique(word[kept], return_inverse=True)
    texts = padded(doc, word)
    texts = np.pad(texts, ((0, 0), (0, -texts.shape[1] % length)), constant_values=-1)
    pieces = texts.reshape(-1, length)
    # Half of a document tells its topics, the other half is scored
    pieces = pieces[(pieces >= 0).sum(axis=1) >= length // 4]
    rng = np.random.default_rng(seed)
    pieces = rng.permuted(rng.permutation(pieces), axis=1)
    pieces = np.take_along_axis(pieces, np.argsort(pieces < 0, axis=1, kind="stable"), axis=1)
    ends = (7 * len(pieces) // 10, 17 * len(pieces) // 20)
    return Corpus(*np.split(pieces, ends), len(vocabulary))


def gibbs_counts(
    pi: TensorVariable, words: TensorVariable, noise: Any, alpha: float, sweeps: int, burn_in: int
) -> TensorVariable:
    """Return words of each topic, shaped as ``pi``: the mean over the sweeps after the burn-in.

    The topic of one word after the other is drawn given those of all others, as
    p(z = k) ∝ (α + n_dk) π_kw, in all documents at once. In the first sweep n_dk counts the words
    before this one. Topics are (K, W), or those of many chains, (chains, K, W), of which each has
    an equal share of the documents, the first the first.
    """
    (documents, length), (*chains, topics, size) = words.type.shape, pi.type.shape
    real = (words >= 0).astype(pi.dtype)
    index = pt.maximum(words, 0)
    owner = np.arange(documents) * max(chains, default=1) // documents
    by_word = pi.reshape((-1, topics, size)).transpose(0, 2, 1).reshape((-1, topics))
    rows = index.T + owner * size
    of_words = by_word[rows.ravel()].reshape((length, documents, topics))
    labels = np.arange(topics)

    def one_word(likelihood, counted, u, old, n):
        n = n - pt.eq(old[:, None], labels) * counted[:, None]
        below = pt.cumsum((alpha + n) * likelihood, axis=1)
        z = pt.sum(below < (u * below[:, -1])[:, None], axis=1)
        # Where u rounds to 1
        z = pt.minimum(z, topics - 1)
        return n + pt.eq(z[:, None], labels) * counted[:, None], z

    def sweep(u, z, n, likelihood, counted):
        n_all, z = pytensor.scan(
            one_word, sequences=[likelihood, counted, u, z], outputs_info=[n, None],
            return_updates=False,
        )  # fmt: skip
        return z, n_all[-1]

    start = [
        pt.as_tensor(np.full((length, documents), topics)),
        pt.zeros((documents, topics), dtype=pi.dtype),
    ]
    u = noise.uniform((sweeps, length, documents))
    z, _ = pytensor.scan(
        sweep, sequences=[u], outputs_info=start, non_sequences=[of_words, real.T],
        return_updates=False,
    )  # fmt: skip
    z = z[burn_in:]
    each = pt.broadcast_to(real.T / (sweeps - burn_in), (sweeps - burn_in, length, documents))
    cell = ((owner * topics + z) * size + index.T).ravel()
    counts = pt.zeros(max(chains, default=1) * topics * size, dtype=pi.dtype)[cell]
    return counts.inc(each.ravel()).reshape(pi.type.shape)


def gradient(
    alpha: float, *, sweeps: int, burn_in: int, softmax: bool = False
) -> Callable[..., TensorVariable]:
    """Return an estimate of ∇ log p(words | topics) for a :func:`sg.GradientPotential`.

    It is n_kw/π_kw with respect to π itself, and n_kw − n_k· π_kw with respect to φ where
    π = softmax(φ), for ``softmax``. Topics of many chains, (chains, K, W), share a batch: the
    estimate of each is that from its own documents, times the number of chains, and so goes with
    the size of the batch as that of a single chain.
    """

    def estimate(topics, words, noise):
        pi = pt.special.softmax(topics, axis=-1) if softmax else topics
        counts = gibbs_counts(pi, words, noise, alpha, sweeps, burn_in)
        if pi.ndim == 3:
            counts = counts * np.asarray(pi.type.shape[0], pi.dtype)
        if softmax:
            return counts - counts.sum(axis=-1, keepdims=True) * pi
        # A word without counts may have a probability that is 0 in floating point
        return counts / pt.maximum(pi, np.finfo(pi.dtype).tiny)

    return estimate


# Rejection fails in all tries less often than once in 100,000
_TRIES = 4


def deep_noise(noise: Any, sweeps: int, documents: int, length: int, layers: Any) -> list[Any]:
    """Return the random numbers of ``deep_units``, by a source with ``normal`` and ``uniform``."""
    k, j, m = layers
    uniform, normal = noise.uniform, noise.normal
    return [
        uniform((sweeps, documents, length)), uniform((sweeps, k, documents)),
        uniform((sweeps, j, documents)), uniform((sweeps, m, documents)),
        normal((sweeps, _TRIES, k, documents)), uniform((sweeps, _TRIES + 1, k, documents)),
    ]  # fmt: skip


def deep_units(
    words: Any, topics: Any, net: Any, random: Any, start: Any, shape: float, *, deep: bool = True
) -> Any:
    """Return units h, weights θ and units j, m of documents after each of some Gibbs sweeps.

    Counts are Poisson(Φ (θ ∘ h)) with θ ~ Gamma(``shape``, 1) and units h ~ Bernoulli(σ(W j + c)),
    j ~ Bernoulli(σ(W' m + c')), m ~ Bernoulli(σ(b)) of the ``net`` (W, c, W', c', b). A sweep draws
    the topic of each word; h with θ integrated out: a topic with words is open, one without by the
    odds of the layer above times 2^-shape; θ, a gamma variable, by the rejection method of
    Marsaglia and Tsang (2000); j and m, unit by unit. All topics are open unless ``deep``.
    """
    mask = (words >= 0).astype(topics.dtype)[:, :, None]
    columns = topics.T[pt.maximum(words, 0)]

    def gamma(a, normals, tries):
        d = a + 1 - 1 / 3
        found = d
        for normal, u in reversed([(normals[i], tries[i]) for i in range(_TRIES)]):
            v = (1 + normal / pt.sqrt(9 * d)) ** 3
            bound = normal**2 / 2 + d * (1 - v + pt.log(pt.maximum(v, 1e-30)))
            found = pt.switch((v > 0) & (pt.log(u) < bound), d * v, found)
        return found * tries[_TRIES] ** (1 / a)

    def units(v, W, c, prior, h, uniforms):
        """One sweep over units h, with units v of the layer below."""

        def update(i, u, h, a, rows, prior, seen, growth):
            others = a - h[i][:, None] * rows[i]
            log_ratio = seen[i] - pt.log1p(pt.sigmoid(others) * growth[i]).sum(axis=1)
            on = (u < pt.sigmoid(prior[i] + log_ratio)).astype(h.dtype)
            return pt.set_subtensor(h[i], on), others + on[:, None] * rows[i]

        number = W.type.shape[1]
        found = pytensor.scan(
            update, sequences=[pt.constant(np.arange(number)), uniforms],
            outputs_info=[h, h.T @ W.T + c],
            non_sequences=[W.T, prior, W.T @ v, pt.expm1(pt.minimum(W.T, 80))],
            n_steps=number, strict=True, return_updates=False,
        )  # fmt: skip
        return found[0][-1]

    def sweep(u, u_h, u_j, u_m, normals, tries, h, theta, j, m, columns, mask, W, c, W2, c2, b):
        below = pt.cumsum(columns * (theta * h).T[:, None, :], axis=2)
        up_to = ((u[:, :, None] * below[:, :, -1:] < below) * mask).sum(axis=1).T
        words_of = up_to - pt.concatenate([pt.zeros_like(up_to[:1]), up_to[:-1]])
        if deep:
            p = pt.sigmoid(W @ j + c[:, None] - np.asarray(shape * np.log(2), h.dtype))
            h = ((u_h < p) | (words_of > 0.5)).astype(h.dtype)
        theta = gamma(np.asarray(shape, h.dtype) + words_of, normals, tries) / (1 + h)
        if deep:
            j = units(h, W, c, W2 @ m + c2[:, None], j, u_j)
            m = units(j, W2, c2, b[:, None] + pt.zeros_like(m), m, u_m)
        return h, theta, j, m

    return pytensor.scan(
        sweep, sequences=random, outputs_info=start, non_sequences=[columns, mask, *net],
        n_steps=random[0].type.shape[0], strict=True, return_updates=False,
    )  # fmt: skip


def deep_start(layers: Any, documents: int) -> list[TensorVariable]:
    """Return the start of ``deep_units``: all topics open, weights of 1, no units above."""
    k, *above = layers
    ones = pt.ones((k, documents), dtype="float32")
    return [ones, ones, *(pt.zeros((n, documents), dtype="float32") for n in above)]


class _Inputs:
    """Random numbers as inputs of a function, and their values."""

    def __init__(self) -> None:
        self.made: list[tuple[TensorVariable, str, tuple[int, ...]]] = []
        self.rng = np.random.default_rng(0)

    def uniform(self, shape: tuple[int, ...], kind: str = "random") -> TensorVariable:
        self.made.append((pt.tensor(dtype="float32", shape=shape), kind, shape))
        return self.made[-1][0]

    def normal(self, shape: tuple[int, ...]) -> TensorVariable:
        return self.uniform(shape, "standard_normal")

    def draw(self) -> list[np.ndarray]:
        return [getattr(self.rng, kind)(shape, dtype="float32") for _, kind, shape in self.made]


def deep_predictor(
    seen: np.ndarray, hidden: np.ndarray, shapes: Any, layers: Any, shape: float, *,
    deep: bool, sweeps: int, burn_in: int,
) -> Callable[..., np.ndarray]:  # fmt: skip
    """Return a function that predicts the hidden words of documents, a flat array.

    It takes the net and the topics, of these ``shapes``. The Gibbs sampler sees the other words;
    the mean of Φ (θ ∘ h) over its sweeps, made to sum to one, predicts the hidden ones.
    """
    noise = _Inputs()
    random: Any = deep_noise(noise, sweeps, *seen.shape, layers)
    *net, topics = (pt.tensor(dtype="float32", shape=s) for s in shapes)
    start = deep_start(layers, len(seen))
    h, theta, *_ = deep_units(pt.constant(seen), topics, net, random, start, shape, deep=deep)
    weight = (h * theta)[burn_in:]
    weight = (weight / pt.maximum(weight.sum(axis=1, keepdims=True), 1e-30)).mean(axis=0)
    compiled = pytensor.function(
        [*net, topics, *random], weight.T @ topics, mode="JAX", on_unused_input="ignore"
    )
    row, column = np.nonzero(hidden >= 0)
    words = hidden[row, column]
    return lambda *draw: np.asarray(compiled(*draw, *noise.draw()))[row, words]


def scores(pi: np.ndarray, words: np.ndarray, alpha: float, iterations: int = 30) -> np.ndarray:
    """Return the probability of every second word of documents given the others, a flat array.

    ``pi`` are topics, (K, W). The proportions of a document are the fixed point of
    θ_k ∝ α + Σ_i θ_k π_kw_i / Σ_j θ_j π_jw_i, over the words at even places, and the word at an
    odd place has the probability Σ_k θ_k π_kw.
    """
    seen, hidden = words[:, ::2], words[:, 1::2]
    likelihood = pi.T[np.maximum(seen, 0)] * (seen >= 0)[..., None]
    theta = np.full((len(words), 1, len(pi)), 1 / len(pi), pi.dtype)
    for _ in range(iterations):
        # Σ_i of the shares θ_k π_kw_i / Σ_j θ_j π_jw_i is θ_k times that of π_kw_i over the sum
        total = np.maximum(np.matmul(theta, likelihood.swapaxes(1, 2)), np.finfo(pi.dtype).tiny)
        theta = alpha + theta * np.matmul(1 / total, likelihood)
        theta /= theta.sum(axis=-1, keepdims=True)
    row, column = np.nonzero(hidden >= 0)
    return np.einsum("nk,nk->n", theta[row, 0], pi.T[hidden[row, column]])


def perplexity(
    draws: np.ndarray, words: np.ndarray, alpha: float, ends: np.ndarray | None = None
) -> np.ndarray:
    """Return the perplexity of document completion after each of ``ends`` draws, by default all.

    exp(−mean log p) over the words scored, p being averaged over the later half of the draws until
    then. ``draws`` has the shape (draws, K, W).
    """
    each = np.array([scores(pi, words, alpha) for pi in draws])
    ends = np.array([len(draws)]) if ends is None else ends
    found = [each[end // 2 : end].mean(axis=0) for end in ends]
    return np.exp(-np.log(np.maximum(found, 1e-300)).mean(axis=1))


def collapsed_gibbs(
    words: np.ndarray, size: int, topics: int, alpha: float, beta: float, *,
    sweeps: int, thin: int, seed: int,
) -> np.ndarray:  # fmt: skip
    """Return draws of the topics, (sweeps // thin, K, W), each the mean given all z.

    Griffiths and Steyvers (2004): topics and proportions are both integrated out, and every sweep
    goes through all documents. Prior: Dirichlet(α) proportions, Dirichlet(β) topics.
    """
    rng = np.random.default_rng(seed)
    doc, place = np.nonzero(words >= 0)
    counts = _collapsed(doc, words[doc, place], size, topics, alpha, beta, sweeps, thin, rng)
    return (counts + beta) / (counts + beta).sum(axis=-1, keepdims=True)


@numba.njit
def _collapsed(doc, word, size, topics, alpha, beta, sweeps, thin, rng):
    z = rng.integers(0, topics, len(word))
    n_dk, n_wk = np.zeros((doc.max() + 1, topics)), np.zeros((size, topics))
    for i in range(len(word)):
        d, w, k = doc[i], word[i], z[i]
        n_dk[d, k] += 1
        n_wk[w, k] += 1
    n_k = n_wk.sum(axis=0)
    kept = np.zeros((sweeps // thin, topics, size))
    below = np.zeros(topics)
    for s in range(sweeps):
        for i in range(len(word)):
            d, w, old = doc[i], word[i], z[i]
            n_dk[d, old] -= 1
            n_wk[w, old] -= 1
            n_k[old] -= 1
            total = 0.0
            for k in range(topics):
                total += (alpha + n_dk[d, k]) * (beta + n_wk[w, k]) / (beta * size + n_k[k])
                below[k] = total
            new = min(np.searchsorted(below, rng.random() * total), topics - 1)
            z[i] = new
            n_dk[d, new] += 1
            n_wk[w, new] += 1
            n_k[new] += 1
        if (s + 1) % thin == 0:
            kept[s // thin] = n_wk.T
    return kept

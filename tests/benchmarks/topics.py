"""Topics of a novel, untuned: latent Dirichlet allocation beside Gibbs and variational peers.

Run all with ``python tests/benchmarks/topics.py``, some with ``--texts chapter --methods SMLD``.
The text is Pride and Prejudice, cut into its 61 chapters or its 2,025 paragraphs. 20 topics,
proportions ~ Dirichlet(0.1), topics ~ Dirichlet(0.1), and the topic of each word summed out. A
fifth of the words of each document is held out. The figure is their perplexity, exp(−mean log p),
where p is the posterior mean of Σ_k θ_dk φ_kw. Each run is in a fresh process:

- ``SMLD``, ``CoRVSGLD``, ``MSGNHT``: batches of 1,000 words, two chains; nothing is given to the
  step.
- ``Gibbs``: the collapsed sampler of Griffiths and Steyvers (2004) in numba, two chains of 2,000
  sweeps, of which every tenth after the first 500 counts by its mean given all words' topics.
- ``variational``: scikit-learn's ``LatentDirichletAllocation``, same priors, 200 iterations.

Columns: perplexity of both chains of a run together, mean, least and most of eight runs of Gibbs
and two of our samplers; mean perplexity of a chain by itself; mean seconds from the call to the
result with compilation, PyMC's checks left out. ``--write FILE`` also writes a Markdown table.
"""

from __future__ import annotations

import argparse
import json
import time

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numba
import numpy as np

from table import Table, digits, fresh

DATA = Path(__file__).parents[1] / "data"
TEXTS = "chapter", "paragraph"
SAMPLERS = "SMLD", "CoRVSGLD", "MSGNHT"
METHODS = "SMLD", "Gibbs", "variational"
FIGURES = "perplexity", "of one chain", "seconds"
COLUMNS = "text", "method", "perplexity", "least", "most", "of one chain", "seconds"
TOPICS, PRIOR = 20, 0.1
DRAWS, TUNE, CHAINS = 1_500, 100, 2
# Runs of other seeds: two runs of one method differ by as much as the methods do
RUNS = {"Gibbs": 8, "variational": 1}
OTHER_RUNS = 2


class Words(NamedTuple):
    """Documents and words of tokens, one entry a token."""

    doc: np.ndarray
    word: np.ndarray


class Text(NamedTuple):
    """Tokens that are seen and held out, and the numbers of documents and different words."""

    seen: Words
    held: Words
    documents: int
    size: int


def text(name: str) -> Text:
    """Hold a fifth of each document's words out."""
    file = np.load(DATA / f"prideprejudice_{name}.npz")
    doc, word = (np.unique(file[k], return_inverse=True)[1].astype("int32") for k in Words._fields)
    order = np.random.default_rng(0).permutation(len(doc))
    order = order[np.argsort(doc[order], kind="stable")]
    doc, word = doc[order], word[order]
    length = np.bincount(doc)
    place = np.arange(len(doc)) - (np.cumsum(length) - length)[doc]
    held = place >= np.ceil(0.8 * length)[doc]
    return Text(
        Words(doc[~held], word[~held]),
        Words(doc[held], word[held]),
        int(doc.max()) + 1,
        int(word.max()) + 1,
    )


def perplexity(p: np.ndarray) -> float:
    """Return exp(−mean log p)."""
    return float(np.exp(-np.log(p).mean()))


def sampled(novel: Text, method: str, seed: int) -> np.ndarray:
    """Return p of the words held out, shape (chains, words)."""
    import pymc as pm
    import pytensor.tensor as pt

    import pymc_sgmcmc as sg

    with pm.Model():
        d, w = pm.Minibatch(*novel.seen, batch_size=1_000)
        theta = pm.Dirichlet("theta", np.full(TOPICS, PRIOR), shape=(novel.documents, TOPICS))
        phi = pm.Dirichlet("phi", np.full(novel.size, PRIOR), shape=(TOPICS, novel.size))
        p = (theta[d] * phi.T[w]).sum(axis=-1)
        pm.CustomDist(
            "word",
            p,
            logp=lambda _, p: pt.log(p),
            observed=w,
            dtype="int32",
            total_size=len(novel.seen.doc),
        )
        result = pm.sample(
            draws=DRAWS,
            tune=TUNE,
            chains=CHAINS,
            step=getattr(sg, method)(),
            random_seed=seed,
            progressbar=False,
            compute_convergence_checks=False,
        )
    theta, phi = (result.posterior[name].values for name in ("theta", "phi"))
    d, w = novel.held
    return np.array([
        np.mean([np.sum(t[d] * f.T[w], axis=1) for t, f in zip(*chain, strict=True)], axis=0)
        for chain in zip(theta, phi, strict=True)
    ])  # fmt: skip


def gibbs(novel: Text, _: str, seed: int) -> np.ndarray:
    """Sample the topics of all words, one after the other."""
    return np.array([
        _gibbs(
            novel.seen, novel.held, novel.documents, novel.size, rng,
            sweeps=2_000, burn_in=500, thin=10,
        )
        for rng in np.random.default_rng(seed).spawn(CHAINS)
    ])  # fmt: skip


@numba.njit
def _gibbs(seen, held, documents, size, rng, sweeps, burn_in, thin):  # type: ignore[no-untyped-def]
    z = rng.integers(0, TOPICS, len(seen.word))
    n_dk, n_wk = np.zeros((documents, TOPICS)), np.zeros((size, TOPICS))
    for i in range(len(z)):
        n_dk[seen.doc[i], z[i]] += 1
        n_wk[seen.word[i], z[i]] += 1
    n_k, n_d = n_wk.sum(axis=0), n_dk.sum(axis=1)
    below, p, kept = np.zeros(TOPICS), np.zeros(len(held.word)), 0
    for s in range(sweeps):
        for i in range(len(z)):
            d, w, old = seen.doc[i], seen.word[i], z[i]
            n_dk[d, old] -= 1
            n_wk[w, old] -= 1
            n_k[old] -= 1
            total = 0.0
            for k in range(TOPICS):
                total += (PRIOR + n_dk[d, k]) * (PRIOR + n_wk[w, k]) / (PRIOR * size + n_k[k])
                below[k] = total
            new = min(np.searchsorted(below, rng.random() * total), TOPICS - 1)
            z[i] = new
            n_dk[d, new] += 1
            n_wk[w, new] += 1
            n_k[new] += 1
        if s < burn_in or s % thin:
            continue
        kept += 1
        for i in range(len(p)):
            d, w = held.doc[i], held.word[i]
            for k in range(TOPICS):
                theta = (PRIOR + n_dk[d, k]) / (PRIOR * TOPICS + n_d[d])
                p[i] += theta * (PRIOR + n_wk[w, k]) / (PRIOR * size + n_k[k])
    return p / kept


def variational(novel: Text, _: str, seed: int) -> np.ndarray:
    """Fit scikit-learn's variational Bayes."""
    from scipy.sparse import coo_array
    from sklearn.decomposition import LatentDirichletAllocation

    counts = coo_array(
        (np.ones(len(novel.seen.doc)), novel.seen), (novel.documents, novel.size)
    ).tocsr()
    fit = LatentDirichletAllocation(
        TOPICS, doc_topic_prior=PRIOR, topic_word_prior=PRIOR, max_iter=200, random_state=seed
    )
    theta = fit.fit_transform(counts)
    phi = fit.components_ / fit.components_.sum(axis=1, keepdims=True)
    return np.sum(theta[novel.held.doc] * phi.T[novel.held.word], axis=1)[None]


def main() -> None:
    """Run the methods, each in a process of its own, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--texts", nargs="*", default=list(TEXTS), choices=TEXTS)
    parser.add_argument("--methods", nargs="*", default=list(METHODS))
    parser.add_argument("--write", type=Path)
    parser.add_argument("--one", nargs=3)
    arguments = parser.parse_args()
    if arguments.one:
        name, method, seed = arguments.one
        run: Callable[[Text, str, int], np.ndarray] = {
            "Gibbs": gibbs,
            "variational": variational,
        }.get(method, sampled)
        novel, start = text(name), time.perf_counter()
        p = run(novel, method, int(seed))
        seconds = time.perf_counter() - start
        each = np.mean([perplexity(x) for x in p])
        found = [perplexity(p.mean(axis=0)), float(each), seconds]
        print(json.dumps(dict(zip(FIGURES, found, strict=True))))
        return
    table = Table(COLUMNS, TEXTS, arguments.write)
    for name in arguments.texts:
        for method in arguments.methods:
            count = RUNS.get(method, OTHER_RUNS)
            runs = [fresh(__file__, "--one", name, method, seed) for seed in range(count)]
            if None in runs:
                continue
            together, each, seconds = np.transpose([[run[x] for x in FIGURES] for run in runs])
            numbers = together.mean(), together.min(), together.max(), each.mean()
            row = [name, method, *(f"{x:.1f}" for x in numbers), digits(seconds.mean())]
            print(*row, sep="  ", flush=True)
            table.add(row)


if __name__ == "__main__":
    main()

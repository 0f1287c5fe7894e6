"""The code of the documentation does what the documentation says."""

import ast
import importlib
import inspect
import re

from functools import partial
from pathlib import Path

import numpy as np
import pymc as pm
import pytest

from scipy import stats

import pymc_sgmcmc as sg
import pymc_sgmcmc.testing

from helpers.conjugate import normal_means
from helpers.laws import error_of_cdf
from helpers.sampling import QUIET, run
from helpers.steps import start
from helpers.z_scores import STANDARD_ERRORS, mean_and_error, means_of_parts

DOCS = Path(__file__).parents[1] / "docs"
# What stands in notebooks/ and is no page
NO_PAGES = {"census_data", "datasets", "reproduction", "topics"}
needs_docs = pytest.mark.skipif(
    not DOCS.exists(), reason="needs the folder docs, which is not part of a source distribution"
)


def listed(page):
    """The pages in the lists of a page."""
    lists = re.findall(
        r"^```\{toctree\}\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    lines = [line for block in lists for line in block.splitlines() if line and line[0] != ":"]
    return [re.sub(r".*<(.*)>", r"\1", line) for line in lines]


def code_of(page):
    """The lines of a page's blocks of code."""
    blocks = re.findall(r"^```(.*)\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    return [line for kind, block in blocks if "eval-rst" not in kind for line in block.splitlines()]


@needs_docs
def test_code_of_pages_has_names_and_arguments_that_there_are():
    for page in [DOCS.parent / "README.md", *DOCS.glob("*.md")]:
        text = page.read_text("utf-8")
        for block in re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
            for node in ast.walk(ast.parse(block)):
                called = node.func if isinstance(node, ast.Call) else node
                if not (isinstance(called, ast.Attribute) and ast.unparse(called.value) == "sg"):
                    continue
                ours = getattr(sg, called.attr)
                if called is not node:
                    named = {keyword.arg for keyword in node.keywords} - {None}
                    assert named <= set(inspect.signature(ours).parameters), (page, block)


def code_with(text, page="add_a_sampler.md"):
    """The one block of Python on the page that holds `text`."""
    path = DOCS / page
    if not path.exists():
        pytest.skip("needs the folder docs, which is not part of a source distribution")
    blocks = re.findall(r"^```python\n(.*?)^```", path.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    [block] = [block for block in blocks if text in block]
    return block


def defined_by(text):
    """What the sampler's file defines."""
    names = {"__name__": "sampler"}
    exec(code_with(text), names)
    return names


@pytest.fixture
def names():
    return defined_by("class SGHMC")


def check_on(backend, names, monkeypatch, **options):
    on_backend = partial(sg.testing.check_sampler, backends=[backend], **options)
    monkeypatch.setattr(sg.testing, "check_sampler", on_backend)
    exec(code_with("check_sampler("), names)


@needs_docs
def test_bar_has_five_entries():
    assert listed(DOCS / "index.md") == ["get_started", "examples", "guide", "api", "about"]


@needs_docs
def test_each_entry_lists_what_is_inside():
    for entry in listed(DOCS / "index.md"):
        pages = listed(DOCS / f"{entry}.md")
        text = (DOCS / f"{entry}.md").read_text("utf-8")
        # A card, a link or a notebook's name in a gallery, beside its line of the list
        found = [page for page in pages if len(re.findall(rf"\b{Path(page).name}\b", text)) < 2]
        assert pages
        assert found == [], entry


@needs_docs
def test_each_page_is_in_one_list():
    pages = [page for page in DOCS.glob("*.md") if not page.stem.endswith("_table")]
    pages += DOCS.glob("api/*.md")
    names = [page.relative_to(DOCS).with_suffix("").as_posix() for page in pages]
    notebooks = DOCS.parent / "notebooks"
    scripts = [*notebooks.glob("*.py"), *notebooks.glob("reproductions/*.py")]
    scripts = [path for path in scripts if path.stem not in NO_PAGES]
    names += [f"_notebooks/{s.relative_to(notebooks).with_suffix('').as_posix()}" for s in scripts]
    assert sorted(name for page in pages for name in listed(page)) == sorted({*names} - {"index"})


@needs_docs
def test_each_reproduction_shows_its_verdicts_after_its_text(monkeypatch):
    pytest.importorskip("sphinx")
    jupytext = pytest.importorskip("jupytext")
    monkeypatch.syspath_prepend(DOCS / "_ext")
    verdicts = importlib.import_module("verdicts")
    folder = DOCS.parent / "notebooks" / "reproductions"
    scripts = [path for path in folder.glob("*.py") if path.stem not in NO_PAGES]
    assert {s.stem for s in scripts} == {path.stem for path in folder.glob("verdicts/*.json")}
    for script in scripts:
        written = script.read_text("utf-8")
        source = [written]
        verdicts.insert_verdicts(None, f"{verdicts.FOLDER}/{script.stem}", source)
        before, after = (jupytext.reads(x, "py:percent").cells for x in (written, source[0]))
        assert after[1].source == f"```{{verdicts}} {script.stem}\n```"
        assert [after[0].source, *(cell.source for cell in after[2:])] == [c.source for c in before]


@needs_docs
@pytest.mark.parametrize(
    "page", [*DOCS.glob("*.md"), *DOCS.glob("api/*.md")], ids=lambda page: page.stem
)
def test_code_of_pages_is_as_wide_as_a_page(page):
    assert [line for line in code_of(page) if len(line) > 88] == []


# With JAX: numba compiles the same update, as the package's own SGHMC shows
@pytest.mark.slow
def test_added_sampler_passes_the_whole_matrix(names, monkeypatch):
    pytest.importorskip("jax")
    check_on("jax", names, monkeypatch)


@pytest.mark.parametrize(("text", "most"), [("class SGHMC", 45), ("class Reflected", 30)])
def test_added_sampler_is_short(text, most):
    lines = [line for line in code_with(text).splitlines() if line.strip()]
    assert len(lines) <= most


def test_added_sampler_is_a_step_method(names):
    SGHMC = names["SGHMC"]
    assert 'step_size : "auto", float or callable' in SGHMC.__doc__
    assert "kinetic_temperature" in SGHMC.stats_dtypes_shapes
    with pm.Model(), pytest.raises(ValueError, match=r"^friction must be positive"):
        pm.Normal("x")
        SGHMC(step_size=0.1, friction=0.0)


def test_added_sampler_is_tuned_for_noise_and_told_of_it(names, caplog):
    data = np.random.default_rng(3).normal(size=(400, 3))
    model, _, sd = normal_means(data, 1.0, batch_size=40)
    with model:
        alone = names["SGHMC"](backend="jax")
        noisy = names["SGHMC"](backend="jax", step_size=0.1, gradient="plain", batches=1)
    draws = run(alone).posterior["mu"].values
    assert draws.std(axis=(0, 1)).mean() / sd == pytest.approx(1.0, abs=0.05)
    assert "R-hat does not see it" not in caplog.text
    # hσ²/2 is 0.45 with plain batches of a tenth of the rows
    run(noisy, chains=1)
    assert "R-hat does not see it" in caplog.text


def test_reflected_sampler_in_theta_errs_like_the_root_of_its_step():
    Reflected, law, found = defined_by("class Reflected")["Reflected"], stats.gamma(0.5), []
    for h in (0.04, 0.01):
        with pm.Model() as model:
            pm.Gamma("x", 0.5, 1.0, shape=4000)
            step = Reflected(step_size=h, thin=round(1 / h), backend="jax")
        found.append(error_of_cdf(model, step, law, seed=1))
    (coarse, coarse_se), (fine, fine_se) = found
    # The known flaw: four times the step, twice the error
    assert abs(fine) > 5 * fine_se
    ratio = coarse / fine
    se = ratio * np.hypot(coarse_se / coarse, fine_se / fine)
    assert abs(ratio - 2) < STANDARD_ERRORS * se + 0.4


def test_reflected_sampler_refuses_what_it_cannot_reflect():
    Reflected = defined_by("class Reflected")["Reflected"]
    with pm.Model():
        pm.Normal("x")
        step = Reflected(step_size=0.01)
    with pytest.raises(NotImplementedError, match="needs positive variables"):
        step.step(start(step, 0, 1))


def test_gradient_of_the_users_own(monkeypatch):
    on_one_core = partial(pm.sample, cores=1, **QUIET)
    monkeypatch.setattr(pm, "sample", on_one_core)
    names = {}
    exec(code_with("GradientPotential", "own_gradient.md"), names)
    mean, sd = names["exact"]
    z = (names["draws"] - mean) / sd
    for values, expected in ((z, 0.0), (z**2, 1.0)):
        found, error = mean_and_error(means_of_parts(values))
        # Of 2,000 draws: the error itself is known to a sixth
        assert abs(found - expected) < STANDARD_ERRORS * error
        assert error < 0.06

"""Packaging: the version, the metadata and what an import does."""

import inspect
import os
import re
import shutil
import subprocess
import tomllib

from importlib import metadata, resources
from pathlib import Path

import pytest

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

import pymc_sgmcmc

from helpers.subprocesses import run_python
from pymc_sgmcmc import testing

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def pinned(folder: Path, name: str) -> dict[str, Version]:
    lines = (folder / name).read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    # Names and versions only: no address from which something would be downloaded.
    assert [pin for pin in pins if not re.fullmatch(r"[a-z0-9-]+==[0-9][0-9a-z.]*", pin)] == []
    return {name: Version(version) for name, version in (pin.split("==") for pin in pins)}


@pytest.fixture(scope="module")
def constraints() -> dict[str, Version]:
    return pinned(ROOT, ".constraints.txt")


def test_version_is_the_same_everywhere():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    cited = re.search(r'^version: "?([^"\s]+)"?$', citation, flags=re.MULTILINE)
    assert cited is not None
    assert cited[1] == pymc_sgmcmc.__version__
    assert metadata.version("pymc-sgmcmc") == pymc_sgmcmc.__version__


def test_changelog_knows_the_version():
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## (\S+)", changelog, flags=re.MULTILINE)
    assert headings[0] == pymc_sgmcmc.__version__


def test_type_hints_are_shipped():
    assert resources.files("pymc_sgmcmc").joinpath("py.typed").is_file()


def test_public_names_exist_and_are_documented():
    for name in pymc_sgmcmc.__all__:
        if not name.startswith("__"):
            assert getattr(pymc_sgmcmc, name).__doc__, name


def parameters_in(doc: str) -> set[str]:
    """Names under "Parameters", or of a dataclass under "Attributes"."""
    section = re.search(
        r"^(?:Parameters|Attributes)\n-+\n(.*?)(?=^\S[^\n]*\n-{3,}\n|\Z)",
        inspect.cleandoc(doc),
        flags=re.DOTALL | re.MULTILINE,
    )
    lines = section[1].splitlines() if section else []
    entries = [line.split(" : ")[0] for line in lines if line and not line.startswith(" ")]
    return {name.strip(" *") for entry in entries for name in entry.split(",")}


@pytest.mark.parametrize(
    "module", [pymc_sgmcmc, pymc_sgmcmc.diagnostics, pymc_sgmcmc.transforms, testing]
)
def test_every_parameter_is_documented(module):
    for name in module.__all__:
        thing = getattr(module, name)
        if not callable(thing) or (isinstance(thing, type) and issubclass(thing, Exception)):
            continue
        taken = set(inspect.signature(thing).parameters) - {"self", "args", "kwargs", "unknown"}
        assert taken <= parameters_in(thing.__doc__), name


def test_signatures_of_step_methods_have_the_common_arguments():
    names = list(inspect.signature(pymc_sgmcmc.MSGNHT).parameters)
    assert names[:4] == ["vars", "integrator", "diffusion", "thermostat_mass"]
    assert {"step_size", "thin", "batch_dim", "model"} <= set(names)
    assert not {"options", "unknown", "self"} & set(names)


def test_python_versions_agree(project):
    supported = SpecifierSet(project["requires-python"])
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    assert [f"3.{minor}" for minor in range(10, 20) if f"3.{minor}" in supported] == named
    assert (ROOT / ".python-version").read_text(encoding="utf-8").strip() in named


def test_extras_exist(project):
    assert {"jax", "docs", "notebooks", "dev"} <= set(project["optional-dependencies"])
    assert {"jax", "docs", "notebooks", "dev"} <= set(
        metadata.metadata("pymc-sgmcmc").get_all("Provides-Extra")
    )


def test_constraints_fit_every_requirement(project, constraints):
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    for requirement in (Requirement(line) for group in groups for line in group):
        name = canonicalize_name(requirement.name)
        if name != "pymc-sgmcmc":
            assert name in constraints, name
            assert constraints[name] in requirement.specifier, name


def test_lowest_versions_are_the_lower_bounds(project, constraints, tmp_path):
    for name in ("Makefile", "pyproject.toml", ".constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    subprocess.run(["make", ".constraints-lowest.txt"], cwd=tmp_path, check=True)
    bounds = {
        requirement.name: Version(bound.version)
        for requirement in map(Requirement, project["dependencies"])
        for bound in requirement.specifier
        if requirement.name in ("pymc", "pytensor") and bound.operator == ">="
    }
    lowest = pinned(tmp_path, ".constraints-lowest.txt")
    # Of PyMC-Marketing 1.3
    assert lowest.pop("numpy") in SpecifierSet("<2.5")
    others = {name: pin for name, pin in constraints.items() if name != "numpy"}
    assert lowest == {**others, **bounds}


def test_jax_has_the_precision_that_is_set_here(project):
    # jax.enable_x64 is new in 0.8
    extras = project["optional-dependencies"]
    required = [Requirement(line) for name in ("jax", "rivals") for line in extras[name]]
    specifiers = [one.specifier for one in required if one.name == "jax"]
    assert len(specifiers) == 2
    assert not any("0.7.2" in one for one in specifiers)


def test_an_import_needs_nothing_compiled():
    done = run_python("import pymc_sgmcmc", env={**os.environ, "NUMBA_DISABLE_JIT": "1"})
    assert done.returncode == 0, done.stderr

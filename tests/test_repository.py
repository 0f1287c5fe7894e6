"""The files around the package agree with it, and with each other."""

import re
import subprocess
import sys
import tomllib

from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
FORMS = sorted((GITHUB / "ISSUE_TEMPLATE").glob("[!c]*.yml"))
# Beside the five that hold the project: what every repository has
TOP_LEVEL = {"pyproject.toml", "pymc_sgmcmc", "notebooks", "tests", "docs"} | {
    "CHANGELOG.md", "CITATION.cff", "LICENSE", "Makefile", "README.md", "codecov.yml",
}  # fmt: skip

if not GITHUB.exists():
    pytest.skip("needs the repository, not a source distribution", allow_module_level=True)


@pytest.fixture(scope="module")
def tracked() -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("needs git, and its folder")
    return listed.stdout.splitlines()


@pytest.fixture(scope="module")
def pyproject() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def pythons(project: dict) -> list[str]:
    return re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))


def read(path: Path) -> dict:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def steps(workflow: dict) -> list[dict]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


def test_top_level_is_kept(tracked):
    assert {name.split("/")[0] for name in tracked if not name.startswith(".")} <= TOP_LEVEL


def test_owner_stands_in_one_file(tracked, pyproject):
    owner = pyproject["project"]["urls"]["Repository"].split("/")[-2].encode()
    # Notebooks are made with links from there, and compared with that in their tests
    written = [name for name in tracked if not name.endswith(".ipynb")]
    files = [ROOT / name for name in written if (ROOT / name).is_file()]
    assert [path.name for path in files if owner in path.read_bytes()] == ["pyproject.toml"]


@pytest.mark.parametrize(
    ("schema", "files"),
    {
        "github-workflows": WORKFLOWS,
        "github-issue-forms": FORMS,
        "github-issue-config": [GITHUB / "ISSUE_TEMPLATE" / "config.yml"],
        "dependabot": [GITHUB / "dependabot.yml"],
        "readthedocs": [ROOT / ".readthedocs.yaml"],
        "codecov": [ROOT / "codecov.yml"],
        "citation-file-format": [ROOT / "CITATION.cff"],
    }.items(),
)
def test_files_are_of_their_schemas(schema, files):
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}"]
    done = subprocess.run([*command, *files], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_may_do_no_more_than_they_must(path):
    workflow = read(path)
    assert workflow["permissions"] == {"contents": "read"}
    assert "group" in workflow["concurrency"]
    assert all("timeout-minutes" in job for job in workflow["jobs"].values())
    # A major version, of which dependabot offers the next
    actions = [step["uses"] for step in steps(workflow) if "uses" in step]
    assert [action for action in actions if not re.search(r"@(release/)?v\d+$", action)] == []


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_make_what_the_makefile_knows(path):
    known = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    commands = [step["run"] for step in steps(read(path)) if step.get("run", "").startswith("make")]
    words = [word for command in commands for word in command.split()[1:] if "=" not in word]
    assert set(words) <= set(known)


def test_pythons_are_those_of_the_package(pyproject):
    supported = pythons(pyproject["project"])
    jobs = read(GITHUB / "workflows" / "tests.yml")["jobs"]
    newest, lowest = (jobs[name]["strategy"]["matrix"] for name in ("newest", "lowest"))
    assert newest["python"] == lowest["python"] == supported
    assert {name.split("-")[0] for name in newest["os"]} == {"ubuntu", "macos", "windows"}
    single = [
        version
        for path in WORKFLOWS
        for step in steps(read(path))
        if (version := step.get("with", {}).get("python-version", "${{")) and "${{" not in version
    ]
    single.append(read(ROOT / ".readthedocs.yaml")["build"]["tools"]["python"])
    assert set(single) <= set(supported)


def test_source_distribution_has_what_it_names(pyproject):
    named = pyproject["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    assert [name for name in named if not (ROOT / name.removeprefix("/")).exists()] == []


def test_readme_of_the_distributions_has_no_relative_link(pyproject):
    text = (ROOT / "README.md").read_text("utf-8")
    hook = pyproject["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    for each in hook["substitutions"]:
        text = re.sub(each["pattern"], each["replacement"], text)
    assert re.findall(r"\]\((?!https://)[^)]*\)", text) == []


def test_conda_recipe_needs_what_the_package_needs(pyproject):
    recipe = read(GITHUB / "conda" / "recipe.yaml")
    source = (ROOT / "pymc_sgmcmc" / "_version.py").read_text("utf-8")
    assert f'__version__ = "{recipe["context"]["version"]}"' in source
    project = pyproject["project"]
    # conda has no extras: what one brings stands by itself
    wanted = {re.sub(r"\[.*\]|\s", "", line) for line in project["dependencies"]}
    wanted |= {f"python{project['requires-python']}", "matplotlib-base"}
    assert {line.replace(" ", "") for line in recipe["requirements"]["run"]} == wanted
    jax = recipe["requirements"]["run_constraints"]
    assert [line.replace(" ", "") for line in jax] == project["optional-dependencies"]["jax"]


def test_links_of_the_community_files_lead_somewhere():
    for page in GITHUB.glob("*.md"):
        links = re.findall(r"\]\(([^)#:]+)\)", page.read_text("utf-8"))
        assert [link for link in links if not (page.parent / link).exists()] == [], page.name

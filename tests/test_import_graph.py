"""Dependencies between the package's parts point one way."""

import ast

from pathlib import Path

import pymc_sgmcmc

ROOT = Path(pymc_sgmcmc.__file__).parent

# From above to below: a part imports from itself and from parts that stand after it
PARTS = [
    "__init__",
    "testing",
    "samplers",
    "diagnostics",
    "store",
    "step",
    "tuning",
    "chain",
    "kernel",
    "model",
    "schedules",
    "backends",
    "disk",
    "transforms",
    "centring",
    "convergence",
    "floats",
    "checks",
    "_version",
]


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts if parts[-1] != "__init__" or len(parts) == 1 else parts[:-1])


def imports() -> dict[str, set[str]]:
    """Modules of the package that each of its modules imports, also inside functions."""
    modules = {module_name(path): path for path in ROOT.rglob("*.py")}
    found: dict[str, set[str]] = {name: set() for name in modules}
    for name, path in modules.items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pymc_sgmcmc"):
                base = (node.module or "").removeprefix("pymc_sgmcmc").removeprefix(".")
                for alias in node.names:
                    full = f"{base}.{alias.name}".strip(".")
                    found[name].add(full if full in modules else base)
    return found


def test_every_module_stands_in_a_part():
    assert {name.split(".")[0] for name in imports()} <= set(PARTS)


def test_no_arrow_points_up():
    rank = {part: i for i, part in enumerate(PARTS)}
    for name, used in imports().items():
        for other in used:
            assert rank[name.split(".")[0]] <= rank[other.split(".")[0]], (name, other)


def test_no_module_imports_itself_by_a_circle():
    graph = imports()
    done: set[str] = set()

    def visit(name: str, way: tuple[str, ...]) -> None:
        assert name not in way, (*way, name)
        if name not in done:
            for other in graph.get(name, ()):
                visit(other, (*way, name))
            done.add(name)

    for name in graph:
        visit(name, ())

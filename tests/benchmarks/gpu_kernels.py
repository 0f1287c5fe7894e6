"""Kernels of an update on a GPU, and the memory that they read and write, without a GPU.

XLA compiles for a GPU that is not there: for an H200, whose description is below. That needs
``pip install "jax[cuda12]"`` and a processor. ``python tests/benchmarks/gpu_kernels.py`` prints
a row for each update of ``gpu.py``, with those of BlackJAX's SGLD and SGNHT; ``--write FILE`` also
writes a Markdown table, ``--list net`` prints the kernels of a model. Rows of an older commit: with
it in ``PYTHONPATH`` and ``--package COMMIT``.

Counts are of all that a compiled call runs for its draws, measurements included, over its updates.
Megabytes are the sizes of what each kernel reads and writes; of what it only slices or gathers, the
slices. Products are chosen by rules, not by trials as on a device.
"""

from __future__ import annotations

import argparse
import json
import re

from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gpu import UPDATES, blackjax, started
from table import Table, digits, fresh

H200 = """
gpu_device_info {
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: 49152
  shared_memory_per_core: 233472
  threads_per_core_limit: 2048
  core_count: 132
  fpus_per_core: 128
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  thread_dim_limit_x: 1024
  thread_dim_limit_y: 1024
  thread_dim_limit_z: 64
  memory_bandwidth: 4800000000000
  l2_cache_size: 52428800
  clock_rate_ghz: 1.98
  device_memory_size: 151397597184
  shared_memory_per_block_optin: 232448
  cuda_compute_capability { major: 9 }
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
  driver_version: "13.0.0"
  runtime_version: "12.9.0"
  compile_time_toolkit_version: "12.9.0"
  dnn_version: "9.10.0"
  name: "NVIDIA H200"
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 10 }
device_description_str: "NVIDIA H200"
"""

COLUMNS = "model", "package", "kernels of an update", "of BlackJAX", "MB", "of BlackJAX"
# Operations that no kernel runs
FREE = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all"}
# Those that read a part of what they are given
PARTIAL = {"slice", "dynamic-slice", "gather"}


@dataclass
class Instruction:
    """A line of a program: the type of its result, its operation and what that is given."""

    kind: str
    operation: str
    given: str
    rest: str

    @property
    def reads(self) -> list[str]:
        """Names of the instructions that it reads."""
        return re.findall(r"%([\w.\-]+)", self.given)

    def attribute(self, pattern: str) -> str:
        """Return what a pattern matches beside the operands."""
        match = re.search(pattern, self.rest)
        return match[1] if match else ""

    @property
    def called(self) -> str:
        """Name of the computation that it runs."""
        return self.attribute(r"(?:calls|to_apply|body)=%([\w.\-]+)")


Program = dict[str, dict[str, Instruction]]


def parsed(text: str) -> tuple[Program, str]:
    """Return the computations of a compiled program, by name, and the name of the first."""
    program: Program = {}
    current, entry = "", ""
    for line in text.splitlines():
        if head := re.match(r"(ENTRY )?%?([\w.\-]+) \(.*\{$", line):
            current = head[2]
            program[current] = {}
            entry = current if head[1] else entry
        elif current and (row := re.match(_LINE, line)):
            program[current][row[1]] = Instruction(*row.groups()[1:])
    return program, entry


_LINE = r"  (?:ROOT )?%([\w.\-]+) = (\(.*?\)|\S+) ([\w\-]+)\((.*?)\)(.*)$"


def kernels(program: Program, name: str, times: int = 1) -> Iterator[tuple[int, str, str]]:
    """Yield how often each kernel of a computation runs, the computation, and the kernel's name."""
    for own, x in program[name].items():
        if x.operation == "while":
            count = int(x.attribute(r'known_trip_count":\{"n":"(\d+)"') or 1)
            yield from kernels(program, x.called, times * count)
        elif x.operation == "call":
            yield from kernels(program, x.called, times)
        elif x.operation not in FREE and not x.operation.endswith("-done"):
            yield times, name, own


def size(kind: str) -> int:
    """Return the bytes of a type, of a tuple those of all parts."""
    total = 0
    for dtype, bits, shape in re.findall(r"\b(pred|[a-z]+)(\d*)\[([\d,]*)\]", kind):
        width = 1 if dtype == "pred" else int(bits) // 8
        total += width * int(np.prod([int(n) for n in shape.split(",") if n] or [1]))
    return total


def moved(program: Program, computation: str, name: str) -> int:
    """Return the bytes that a kernel reads and writes."""
    x = program[computation][name]
    inner = program.get(x.called, {}) if x.operation.startswith("fusion") else {}
    total = size(x.kind)
    for i, read in enumerate(x.reads):
        whole = size(program[computation][read].kind)
        parameters = [
            own for own, p in inner.items() if p.operation == "parameter" and p.given == str(i)
        ]
        total += min([whole, *(_read(inner, own) for own in parameters)])
    return total


def _read(inner: dict[str, Instruction], name: str) -> int:
    """Return the bytes that a fused computation reads of what ``name`` is."""
    total = 0
    for own, x in inner.items():
        if name not in x.reads:
            continue
        if x.operation == "bitcast":
            total += _read(inner, own)
        else:
            total += size(x.kind if x.operation in PARTIAL else inner[name].kind)
    return total


def of_gpu(jitted: Any, given: Any) -> str:
    """Return the program that a GPU would run of a loop of JAX, nothing of what is no loop."""
    import jax

    from jax.experimental import topologies

    topology = topologies.get_topology_desc(
        "", platform="cuda", topology="1x1x1", target_config=H200
    )
    mesh = topologies.make_mesh(topology, (1,), ("device",))
    place = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())

    def shape(x: Any) -> Any:
        kind = jax.typeof(x)
        return jax.ShapeDtypeStruct(kind.shape, kind.dtype, sharding=place)

    lowered = jitted.trace(*jax.tree.map(shape, given)).lower(lowering_platforms=("cuda",))
    return lowered.compile().as_text() if "while" in lowered.as_text() else ""


def programs(make: Callable[[], Any]) -> tuple[Any, str]:
    """Return what ``make`` returns, and the longest program that JAX compiles meanwhile."""
    import jax

    jit, texts = jax.jit, [""]

    def noted(function: Any = None, **options: Any) -> Any:
        if function is None or any(options.values()):
            return jit(function, **options) if function else lambda f: noted(f, **options)
        jitted, is_new = jit(function), True

        def call(*given: Any) -> Any:
            nonlocal is_new
            if is_new:
                # Here, as the precision is set for the call
                texts.append(of_gpu(jitted, given))
                is_new = False
            return jitted(*given)

        return call

    jax.jit = noted
    try:
        made = make()
    finally:
        jax.jit = jit
    return made, max(texts, key=len)


@dataclass
class Kernel:
    """How often a kernel runs in an update, the bytes that it moves, its name and its origin."""

    times: float
    bytes: int
    name: str
    origin: str


def listed(name: str, of: str) -> list[Kernel]:
    """Return the kernels of a model's updates, of the package's or of BlackJAX's."""
    import jax

    if of == "ours":
        # The package does as on a GPU then, though it computes on the processor
        jax.default_backend = lambda: "cuda"
        (step, _), text = programs(lambda: started(name))
        layout = step._runner._transition.layout
        count = layout.updates * layout.draws
    else:
        count, text = programs(lambda: called(*blackjax(name)))
    program, entry = parsed(text)
    return [
        Kernel(
            times / count,
            moved(program, where, own),
            own,
            program[where][own].attribute(r'op_name="([^"]*)"').rpartition("/")[2],
        )
        for times, where, own in kernels(program, entry)
    ]


def called(run: Callable[[], None], count: int) -> int:
    """Call what makes updates, and return their number."""
    run()
    return count


def measured(name: str, of: str) -> list[Kernel]:
    """Return the same from a fresh process."""
    env = {"JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}
    return [Kernel(*row) for row in fresh(__file__, "--one", name, of, check=True, env=env)]


def _two(cells: list[str]) -> list[str]:
    return [*cells, ""][:2]


def main() -> None:
    """Count, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="*", default=UPDATES, choices=UPDATES)
    parser.add_argument("--list", choices=UPDATES)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--package", default="today", help="what the rows are called")
    parser.add_argument("--one", nargs=2)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps([astuple(x) for x in listed(*arguments.one)]))
        return
    if arguments.list:
        for x in measured(arguments.list, "ours"):
            print(f"{x.times:8.3f} {x.bytes:12,} {x.name:36} {x.origin}")
        return
    table = Table(COLUMNS, UPDATES, arguments.write)
    for model in arguments.models:
        pair = [measured(model, "ours")]
        if model != "factorisation":
            pair.append(measured(model, "BlackJAX"))
        counts = [digits(sum(x.times for x in own)) for own in pair]
        sizes = [digits(sum(x.times * x.bytes for x in own) / 1e6) for own in pair]
        row = [model, arguments.package, *_two(counts), *_two(sizes)]
        print(" | ".join(row), flush=True)
        table.add(row)


if __name__ == "__main__":
    main()

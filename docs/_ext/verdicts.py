"""What the full runs of the reproductions found, on their pages and in tables.

``{verdicts} NAME`` shows a run's claims, its picture, what a call with nothing set gives and what
was printed, ``{reproductions}`` a row for each run. They read what
``notebooks/reproductions/reproduction.py`` wrote to ``verdicts/``: a claim holds (true), does not
(false), or the run cannot tell (null). ``{claims} PAPER`` shows the rows of ``claims.toml`` for a
paper: each of its figures, tables and theorems, where it is and what the runs said of it.
"""

from __future__ import annotations

import json
import re
import tomllib

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

FOLDER = "_notebooks/reproductions"
# Of one claim, and of several
WORDS = {
    True: ("holds", "hold"),
    False: ("does not hold", "do not hold"),
    None: ("cannot be told here", "cannot be told here"),
}
OUTCOMES = {True: "right", False: "not right", None: "no reference"}
CELL = "# %% [markdown]\n# ```{{verdicts}} {}\n# ```\n\n"


def word(holds: bool | None, text: str = "") -> nodes.inline:
    """Return a coloured word."""
    kind = WORDS[holds][0].split()[0]
    return nodes.inline("", text or WORDS[holds][0], classes=["verdict", f"verdict-{kind}"])


def counted(holds: Iterable[bool | None]) -> nodes.paragraph:
    """Return how many claims hold, do not, or cannot be told."""
    holds, fate = list(holds), nodes.paragraph()
    for value, (one, several) in WORDS.items():
        if count := holds.count(value):
            comma = [nodes.Text(", ")] if fate.children else []
            fate += [*comma, word(value, f"{count} {several if count > 1 else one}")]
    return fate


def belonging(row: dict[str, Any], found: dict[str, Any]) -> list[dict[str, Any]]:
    """Return those of a run's verdicts that belong to a row of ``claims.toml``."""
    pattern = row.get("verdicts", "")
    return [v for v in found["verdicts"] if re.search(pattern, v["says"], re.IGNORECASE)]


def table(heads: list[str], rows: Iterable[list[list[nodes.Node]]]) -> nodes.table:
    """Return a table of rows of cells."""
    group = nodes.tgroup("", *[nodes.colspec(colwidth=1) for _ in heads], cols=len(heads))
    cells = [nodes.entry("", nodes.paragraph("", head)) for head in heads]
    group += nodes.thead("", nodes.row("", *cells))
    group += nodes.tbody("", *[nodes.row("", *[nodes.entry("", *c) for c in row]) for row in rows])
    return nodes.table("", group, classes=["reproductions"])


class _Found(SphinxDirective):
    """A directive that reads verdicts."""

    def read(self, name: str) -> dict[str, Any]:
        """Return what a run found."""
        path = Path(self.env.srcdir, FOLDER, "verdicts", f"{name}.json")
        self.env.note_dependency(str(path))
        return json.loads(path.read_text(encoding="utf-8"))

    def link(self, name: str, text: str) -> addnodes.pending_xref:
        """Return a link to the page of a run."""
        return addnodes.pending_xref(
            "", nodes.inline("", text), refdomain="std", reftype="doc",
            reftarget=f"/{FOLDER}/{name}", refexplicit=True, refwarn=True, refdoc=self.env.docname,
        )  # fmt: skip

    def picture(self, name: str, found: dict[str, Any]) -> list[nodes.Node]:
        """Return the picture of a run, if it left one."""
        uri = f"/{FOLDER}/verdicts/{name}.png"
        if not Path(self.env.srcdir, uri[1:]).exists():
            return []
        return [nodes.image("", uri=uri, alt=found["experiment"])]


class Verdicts(_Found):
    """The claims of one paper's experiment, and what a run saw of each."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return a box."""
        [name] = self.arguments
        found = self.read(name)
        cost = f"{found['seconds']:,.0f} seconds, {found['updates']:,} updates, {found['machine']}"
        if "date" in found:
            cost += f"; {found['date']}, commit {found['commit']}"
        else:
            cost += "; of an earlier version of this page"
        box = nodes.container(classes=["verdicts"])
        box += nodes.paragraph("", "", nodes.strong("", "The full run"), nodes.Text(f": {cost}"))
        claims = nodes.bullet_list()
        for verdict in found["verdicts"]:
            said = nodes.paragraph("", "", word(verdict["holds"]))
            said += nodes.Text(f" The paper says {verdict['says'].removeprefix('that ')}.")
            seeds = verdict.get("seeds", 1)
            runs = f" ({seeds} seeds)" if seeds > 1 else ""
            seen = nodes.paragraph("", f"We see {verdict['seen']}{runs}.", classes=["seen"])
            claims += nodes.list_item("", said, seen)
        box += claims
        if calls := found.get("nothing_set"):
            box += nodes.paragraph("", "", nodes.strong("", "With nothing set"))
            box += nodes.bullet_list("", *[self.call(**call) for call in calls])
        return [box, *self.figure(name, found), *self.printed(name)]

    def call(self, call: str, seen: str, right: bool | None, seconds: float) -> nodes.list_item:
        """Return what a call with nothing set gives."""
        kind = WORDS[right][0].split()[0]
        said = nodes.paragraph()
        said += nodes.inline("", OUTCOMES[right], classes=["verdict", f"verdict-{kind}"])
        said += [nodes.Text(" "), nodes.literal("", call)]
        said += nodes.Text(f" gives {seen} in {seconds:,.0f} seconds.")
        return nodes.list_item("", said)

    def figure(self, name: str, found: dict[str, Any]) -> list[nodes.Node]:
        """Return the run's picture with the number of the paper's."""
        caption = nodes.caption("", f"{found['paper']}, {found['experiment']}. The full run.")
        return [nodes.figure("", image, caption) for image in self.picture(name, found)]

    def printed(self, name: str) -> list[nodes.Node]:
        """Return what the run printed, folded."""
        path = Path(self.env.srcdir, FOLDER, "verdicts", f"{name}.txt")
        if not path.exists():
            return []
        self.env.note_dependency(str(path))
        head = "<details><summary>What the full run printed</summary>"
        return [
            nodes.raw("", head, format="html"),
            nodes.literal_block("", path.read_text(encoding="utf-8").strip(), language="text"),
            nodes.raw("", "</details>", format="html"),
        ]


class Reproductions(_Found):
    """A table of all experiments, each with its picture, its page and how its claims fare."""

    def run(self) -> list[nodes.Node]:
        """Return the table."""
        names = sorted(p.stem for p in Path(self.env.srcdir, FOLDER, "verdicts").glob("*.json"))
        found = {name: self.read(name) for name in names}
        pictures = {name: self.picture(name, found[name]) for name in names}
        heads = ["experiment", "the paper's claims"]
        if any(pictures.values()):
            heads.insert(0, "")
        return [table(heads, [self.row(n, found[n], pictures[n], heads) for n in names])]

    def row(
        self, name: str, found: dict[str, Any], picture: list[nodes.Node], heads: list[str]
    ) -> list[list[nodes.Node]]:
        """Return the cells of one experiment."""
        about = [
            nodes.paragraph("", "", self.link(name, found["experiment"])),
            nodes.paragraph("", found["paper"]),
        ]
        fate = counted(verdict["holds"] for verdict in found["verdicts"])
        return [about, [fate]] if len(heads) == 2 else [picture, about, [fate]]


class Claims(_Found):
    """A table of what a paper has, where it is here, and what the runs said of it."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        """Return the table."""
        path = Path(self.env.srcdir, FOLDER, "claims.toml")
        self.env.note_dependency(str(path))
        claims = tomllib.loads(path.read_text(encoding="utf-8"))["claims"]
        rows = [self.row(row) for row in claims if row["paper"] == self.arguments[0]]
        return [table(["in the paper", "here", "settings", "the claims", "seeds"], rows)]

    def row(self, row: dict[str, Any]) -> list[list[nodes.Node]]:
        """Return the cells of a figure, a table or a theorem."""
        what = nodes.paragraph(
            "", "", nodes.strong("", row["item"]), nodes.Text(f": {row['about']}")
        )
        said = row.get("why", "tested" if "tests" in row else "not run yet")
        where, fate, seeds = [], nodes.paragraph("", said), ""
        if name := row.get("notebook"):
            verdicts = []
            if Path(self.env.srcdir, FOLDER, "verdicts", f"{name}.json").exists():
                where.append(nodes.paragraph("", "", self.link(name, name)))
                verdicts = belonging(row, self.read(name))
            if verdicts:
                fate = counted(verdict["holds"] for verdict in verdicts)
                many = sorted({verdict.get("seeds", 1) for verdict in verdicts})
                seeds = "–".join(str(n) for n in dict.fromkeys((many[0], many[-1])))
        where += [nodes.paragraph("", "", nodes.literal("", t)) for t in row.get("tests", [])]
        settings = nodes.paragraph("", row.get("settings", ""))
        return [[what], where, [settings], [fate], [nodes.paragraph("", seeds)]]


def insert_verdicts(app: Sphinx, docname: str, source: list[str]) -> None:
    """Put what the full run found after a reproduction's first cell, which is its text."""
    folder, _, name = docname.rpartition("/")
    if folder == FOLDER:
        start, mark, rest = source[0].partition("\n# %%")
        first, after, code = rest.partition("\n# %%")
        source[0] = f"{start}{mark}{first}\n{CELL.format(name)}{after.lstrip()}{code}"


def setup(app: Sphinx) -> dict[str, bool]:
    """Tell Sphinx."""
    app.add_directive("verdicts", Verdicts)
    app.add_directive("reproductions", Reproductions)
    app.add_directive("claims", Claims)
    app.connect("source-read", insert_verdicts)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

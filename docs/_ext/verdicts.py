"""What the full runs of the reproductions found, on their pages and in one table.

``{verdicts} NAME`` shows a run's claims, ``{reproductions}`` a row for each run. Both read what
``notebooks/reproductions/reproduction.py`` wrote to ``verdicts/``: a claim holds (true), does not
(false), or the run cannot tell (null). A picture stands beside a run that left one.
"""

from __future__ import annotations

import json

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
CELL = "# %% [markdown]\n# ```{{verdicts}} {}\n# ```\n\n"


def word(holds: bool | None, text: str = "") -> nodes.inline:
    """Return a coloured word."""
    kind = WORDS[holds][0].split()[0]
    return nodes.inline("", text or WORDS[holds][0], classes=["verdict", f"verdict-{kind}"])


class _Found(SphinxDirective):
    """A directive that reads verdicts."""

    def read(self, name: str) -> dict[str, Any]:
        """Return what a run found."""
        path = Path(self.env.srcdir, FOLDER, "verdicts", f"{name}.json")
        self.env.note_dependency(str(path))
        return json.loads(path.read_text(encoding="utf-8"))

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
        box = nodes.container(classes=["verdicts"])
        box += nodes.paragraph("", "", nodes.strong("", "The full run"), nodes.Text(f": {cost}"))
        claims = nodes.bullet_list()
        for verdict in found["verdicts"]:
            said = nodes.paragraph("", "", word(verdict["holds"]))
            said += nodes.Text(f" The paper says {verdict['says'].removeprefix('that ')}.")
            seen = nodes.paragraph("", f"We see {verdict['seen']}.", classes=["seen"])
            claims += nodes.list_item("", said, seen)
        box += claims
        return [box, *self.picture(name, found)]


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
        table = nodes.table(classes=["reproductions"])
        group = nodes.tgroup("", *[nodes.colspec(colwidth=1) for _ in heads], cols=len(heads))
        cells = [nodes.entry("", nodes.paragraph("", head)) for head in heads]
        group += nodes.thead("", nodes.row("", *cells))
        group += nodes.tbody("", *[self.row(n, found[n], pictures[n], heads) for n in names])
        table += group
        return [table]

    def row(
        self, name: str, found: dict[str, Any], picture: list[nodes.Node], heads: list[str]
    ) -> nodes.row:
        """Return the row of one experiment."""
        link = addnodes.pending_xref(
            "", nodes.inline("", found["experiment"]), refdomain="std", reftype="doc",
            reftarget=f"/{FOLDER}/{name}", refexplicit=True, refwarn=True, refdoc=self.env.docname,
        )  # fmt: skip
        about = [nodes.paragraph("", "", link), nodes.paragraph("", found["paper"])]
        fate = nodes.paragraph()
        holds = [verdict["holds"] for verdict in found["verdicts"]]
        for value, (one, several) in WORDS.items():
            if count := holds.count(value):
                shown = several if count > 1 else one
                comma = [nodes.Text(", ")] if fate.children else []
                fate += [*comma, word(value, f"{count} {shown}")]
        cells = [about, [fate]] if len(heads) == 2 else [picture, about, [fate]]
        return nodes.row("", *[nodes.entry("", *cell) for cell in cells])


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
    app.connect("source-read", insert_verdicts)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

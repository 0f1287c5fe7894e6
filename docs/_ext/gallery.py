"""Cards of examples: each with a notebook's title, some words, and a plot of its outputs.

``{gallery}`` holds a definition list, of notebooks' names and of the words. The plot is that of the
cell with the tag ``thumbnail``, else the last one of the notebook.
"""

from __future__ import annotations

import base64
import json
import re

from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

CARD = """
:::{{grid-item-card}} {title}
:link: /_notebooks/{name}
:link-type: doc
{picture}
{words}
:::
"""


class Gallery(SphinxDirective):
    """A grid of cards."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Return the grid."""
        entries = re.findall(r"^(\w+)\n: (.*?)\s*(?=^\w+\n:|\Z)", self.block, re.M | re.S)
        cards = "".join(self.card(name, words) for name, words in entries)
        text = f"::::{{grid}} 1 2 2 3\n:gutter: 3\n:class-container: gallery\n{cards}\n::::\n"
        return self.parse_text_to_nodes(text)

    @property
    def block(self) -> str:
        """The text inside the directive."""
        return "\n".join(self.content) + "\n"

    def card(self, name: str, words: str) -> str:
        """Return a card in MyST."""
        folder = Path(self.env.srcdir, "_notebooks")
        source = (folder / f"{name}.py").read_text(encoding="utf-8")
        title = re.search(r"^# # (.*)$", source, re.M)[1]
        image = thumbnail(folder / f"{name}.ipynb")
        picture = ""
        if image is not None:
            kept = Path(self.env.srcdir, "_thumbnails", f"{name}.png")
            kept.parent.mkdir(exist_ok=True)
            kept.write_bytes(image)
            picture = f":img-top: /_thumbnails/{name}.png\n"
        return CARD.format(title=title, name=name, picture=picture, words=words)


def thumbnail(path: Path) -> bytes | None:
    """Return a plot of a notebook with outputs."""
    if not path.exists():
        return None
    found: list[tuple[bool, str]] = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        tagged = "thumbnail" in cell["metadata"].get("tags", [])
        for output in cell.get("outputs", []):
            if "image/png" in output.get("data", {}):
                found.append((tagged, output["data"]["image/png"]))
    # The last of those that are tagged, or of all
    found.sort(key=lambda pair: pair[0])
    return base64.b64decode("".join(found[-1][1])) if found else None


def setup(app: Sphinx) -> dict[str, bool]:
    """Tell Sphinx."""
    app.add_directive("gallery", Gallery)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

"""Follow every link of the built pages: to a page, to a place on it, or to a host that is known.

Runs after `make docs`. Links out of the site are not opened, which `make links` does where there is
internet; a host that is not of the list may be a slip.
"""

import sys

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

HTML = Path(__file__).parents[1] / "docs" / "_build" / "html"
HOSTS = {
    "arxiv.org", "bambinos.github.io", "colab.research.google.com", "distributed.dask.org",
    "docs.jax.dev", "doi.org", "github.com", "jobqueue.dask.org", "keepachangelog.com",
    "pydata-sphinx-theme.readthedocs.io", "semver.org", "www.pymc.io", "www.sphinx-doc.org",
}  # fmt: skip


class Page(HTMLParser):
    """The places on a page and the links from it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.places: set[str] = {"", "#"}
        self.links: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep what the tag names and where it leads."""
        values = dict(attrs)
        self.places |= {values[key] or "" for key in ("id", "name") if key in values}
        if tag in ("a", "img", "source") and (link := values.get("href") or values.get("src")):
            self.links.append(link)


def wrong(path: Path, link: str, pages: dict[Path, Page]) -> str | None:
    """Return what is wrong with a link, if anything is."""
    parts = urlsplit(link)
    if parts.scheme == "data":
        return None
    if parts.scheme:
        return None if parts.scheme == "https" and parts.hostname in HOSTS else "unknown host"
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if not target.exists():
        return "no such page"
    if target in pages and unquote(parts.fragment) not in pages[target].places:
        return "no such place on the page"
    return None


def main() -> None:
    """Check all pages, print what is wrong."""
    pages = {path.resolve(): Page(path) for path in HTML.rglob("*.html")}
    found = {
        f"{path.relative_to(HTML.resolve())}: {link}: {fault}"
        for path, page in pages.items()
        # The links back from sources are Sphinx's, and some of them are wrong
        if "_modules" not in path.parts
        for link in page.links
        if (fault := wrong(path, link, pages))
    }
    print("\n".join(sorted(found)))
    print(f"{sum(len(page.links) for page in pages.values())} links, {len(found)} faults")
    sys.exit(not pages or bool(found))


if __name__ == "__main__":
    main()

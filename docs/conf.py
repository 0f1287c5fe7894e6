"""Sphinx's configuration: `make docs` builds the pages and fails on warnings."""

import sys
import tomllib

from pathlib import Path

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.ext.autosummary import autosummary_table

import pymc_sgmcmc

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))
PROJECT = tomllib.loads((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
REPOSITORY = PROJECT["urls"]["Repository"]

# The notebooks live outside of the sources. A link, not a copy: they run in their own folder, so
# that relative paths mean the same here and there.
NOTEBOOKS = HERE / "_notebooks"
if not NOTEBOOKS.exists():
    NOTEBOOKS.unlink(missing_ok=True)
    NOTEBOOKS.symlink_to(Path("..", "notebooks"), target_is_directory=True)

project = "pymc_sgmcmc"
author = "The pymc_sgmcmc developers"
project_copyright = author
version = release = pymc_sgmcmc.__version__

extensions = [
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
    # Of docs/_ext
    "gallery",
    "verdicts",
]
# Every .py in docs is a notebook to MyST-NB, except these. Of the examples it shows what
# `make notebooks` made of them.
exclude_patterns = [
    "_build",
    "_ext",
    "conf.py",
    "_notebooks/*.py",
    "_notebooks/reproductions/reproduction.py",
    "_notebooks/reproductions/datasets.py",
    "_notebooks/reproductions/topics.py",
    "_notebooks/reproductions/.data",
    "**/.ipynb_checkpoints",
    "*_table.md",
]

myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

nb_custom_formats = {".py": ["jupytext.reads", {"fmt": "py:percent"}]}
nb_execution_mode = "off"

# The types stand in the docstrings, where numpydoc reads them.
autodoc_typehints = "none"
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
copybutton_exclude = ".linenos, .gp, .go"

html_theme = "pymc_sphinx_theme"
html_title = project
html_static_path = ["_static"]
html_css_files = ["site.css"]
# The five entries of the bar lead to them.
html_sidebars = {"index": []}
# The theme is made for PyMC's own sites: without the links to their accounts and donations, and
# without their count of visits.
html_theme_options = {
    "google_analytics_id": "",
    "header_links_before_dropdown": 5,
    "show_prev_next": False,
    "icon_links": [{"name": "GitHub", "url": REPOSITORY, "icon": "fa-brands fa-github"}],
    "navbar_end": ["theme-switcher", "navbar-icon-links"],
    "secondary_sidebar_items": ["page-toc", "edit-this-page", "sourcelink"],
    "use_edit_page_button": True,
}
html_context = {
    "edit_page_provider_name": "GitHub",
    "edit_page_url_template": REPOSITORY
    + "/edit/main/{{ ('docs/' ~ file_name).replace('docs/_notebooks', 'notebooks')"
    # What is edited of an example is its script
    + ".replace('.ipynb', '.py') }}",
}
html_show_sourcelink = True


def from_outside(app, path, docname, content):
    """Mend links of a file of the repository that is a page here, too."""
    content[0] = content[0].replace("](../docs/", "](")
    content[0] = content[0].replace("](ISSUE_TEMPLATE)", f"]({REPOSITORY}/issues/new/choose)")


def without_references(app, doctree):
    """Take numpydoc's references out of the API's tables: they are numbers of other pages."""
    for table in doctree.findall(autosummary_table):
        for node in [*table.findall(nodes.citation_reference), *table.findall(pending_xref)]:
            if "citation" in (node.get("refdomain"), node.tagname.partition("_")[0]):
                parent, place = node.parent, node.parent.index(node)
                parent.remove(node)
                # The space before it
                if place and isinstance(parent[place - 1], nodes.Text):
                    parent[place - 1] = nodes.Text(parent[place - 1].rstrip())


def setup(app):
    """Tell Sphinx."""
    app.connect("doctree-read", without_references)
    app.connect("include-read", from_outside)

"""Sphinx's configuration: `make docs` builds the pages and fails on warnings."""

import tomllib

from pathlib import Path

import pymc_sgmcmc

HERE = Path(__file__).parent
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
]
# Every .py in docs is a notebook to MyST-NB, except these. Of the examples it shows what
# `make notebooks` made of them.
exclude_patterns = [
    "_build",
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
html_title = f"pymc_sgmcmc {version}"
# The theme is made for PyMC's own sites: without the links to their accounts and donations.
html_theme_options = {
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

"""Sphinx configuration; nothing is fetched from the network."""

from importlib.metadata import version as _version

project = "daskgp"
author = "the daskgp developers"
copyright = author
release = version = _version("daskgp")

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_design",
]
exclude_patterns = ["_build", "Thumbs.db", ".DS_Store"]
nitpicky = False

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

autosummary_generate = False  # the pages under api/ are written by hand, section by section
autodoc_typehints = "none"  # the docstrings give types and shapes
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

html_theme = "furo"
html_title = f"daskgp {release}"
html_static_path = ["_static"]
html_css_files = ["daskgp.css"]
html_show_copyright = False
html_copy_source = False

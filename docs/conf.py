"""Sphinx configuration; nothing is fetched from the network, neither by a build nor by a page."""

import os
import sys
from importlib.metadata import version as _version
from importlib.util import find_spec
from pathlib import Path

project = "daskgp"
author = "the daskgp developers"
copyright = author
release = version = _version("daskgp")

extensions = [
    "myst_nb",  # MyST pages, and those under tutorials/ whose code is run
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
]
exclude_patterns = ["_build", "Thumbs.db", ".DS_Store"]
nitpicky = False
# Pages that are built without being run have no kernel to name the lexer of their code.
suppress_warnings = ["myst-nb.lexer"]

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

# Tutorials run in folders of their own, with the package and the command of this environment.
nb_execution_mode = "force"  # a page that was read before and has not changed does not run again
nb_execution_in_temp = True
nb_execution_timeout = 600
nb_execution_raise_on_error = True
nb_merge_streams = True
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
os.environ["MATPLOTLIBRC"] = str(Path(__file__).parent / "tutorials" / "matplotlibrc")

autosummary_generate = False  # the pages under api/ are written by hand, section by section
autodoc_typehints = "none"  # the docstrings give types and shapes
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

# One file of MathJax with its fonts in it, which pages load from the site itself.
_mathjax = find_spec("sphinx-mathjax-offline")
assert _mathjax is not None
assert _mathjax.origin is not None
mathjax_path = "tex-svg.js"
mathjax3_config = {"svg": {"fontCache": "global"}}

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

html_theme = "furo"
html_title = f"daskgp {release}"
html_static_path = [
    "_static",
    str(Path(_mathjax.origin).parent / "static" / "mathjax" / mathjax_path),
]
html_css_files = ["daskgp.css"]
html_show_copyright = False
html_copy_source = False


def _left_out(app, what, name, member, skip, options):
    """Leave out what scikit-learn adds for its own routing of arguments."""
    routing = name == "get_metadata_routing" or (name.startswith("set_") and "_request" in name)
    return True if routing else None


def setup(app):
    """Register the choice of members."""
    app.connect("autodoc-skip-member", _left_out)

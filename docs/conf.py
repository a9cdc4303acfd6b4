"""Sphinx's configuration: `sphinx-build -W -b html docs build/docs`. docs/pages.py makes the tables and plots."""

import sys
from pathlib import Path

from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).parent))

import pages

project = "gemm-generator"
extensions = ["myst_parser"]
html_theme = "furo"
html_title = project
html_copy_source = False
html_show_copyright = False
html_static_path = ["static"]
html_css_files = ["console.css"]
# A reference to nothing is a warning, and -W makes that an error.
nitpicky = True
# Links to a heading of a page: choosing.md#a-heading.
myst_heading_anchors = 3
exclude_patterns = ["examples"]


def setup(app: Sphinx) -> None:
    """Fill the long tables of the pages, which are not committed."""
    app.connect("source-read", lambda app, name, source: source.__setitem__(0, pages.built(source[0])))

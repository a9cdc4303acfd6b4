"""Sphinx's configuration: `sphinx-build -W -b html docs build/docs`. docs/pages.py makes the tables and plots."""

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

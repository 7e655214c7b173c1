# The configuration of Sphinx for the site.
# SPDX-License-Identifier: BSL-1.0
import pathlib
import sys

here = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(here))
sys.path.insert(0, str(here.parents[1] / "tests/package"))
import versions  # noqa: E402

project = "dat"
author = "The dat authors"
copyright = "2026 The dat authors"
version = release = versions.version(here.parents[1])

extensions = ["myst_parser", "sphinx_copybutton", "pictures", "theme"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
myst_heading_anchors = 4
# References of C++ that the domain does not find are names of the standard library.
nitpicky = False
primary_domain = "cpp"
highlight_language = "none"
# The declarations of different headers share names that C++ overloads by template arguments or constraints. A source file that Pygments
# does not understand is shown without colors.
suppress_warnings = ["duplicate_declaration.cpp", "misc.highlighting_failure", "myst.header"]

html_theme = "furo"
html_title = f"dat {release}"
html_static_path = [str(here / "static")]
html_css_files = ["site.css"]
html_js_files = [("scripts/gumshoe-patched.js", {"priority": 100}), "filter.js"]
html_favicon = str(here / "static/favicon.svg")
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False
html_domain_indices = False
pygments_style = "tango"
pygments_dark_style = "monokai"
copybutton_prompt_text = r"\$ |    \./"
copybutton_prompt_is_regexp = True
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b5c8a", "color-brand-content": "#0b5c8a"},
    "dark_css_variables": {"color-brand-primary": "#6cc0f0", "color-brand-content": "#6cc0f0"},
}

"""Sphinx's settings for the site and the single page that becomes the PDF; stage.py copies this file beside the pages."""

project = "Athanor"
html_title = "Athanor"
author = "Athanor's authors"
copyright = "Athanor's authors. Text: CC BY 4.0. Code: Apache 2.0"  # noqa: A001, Sphinx's name for it
extensions = ["myst_parser", "sphinx_copybutton"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
myst_heading_anchors = 6
suppress_warnings = ["myst.header"]  # some pages go from # to ###
highlight_language = "none"  # of indented blocks, which hold commands and what they print
pygments_style = "friendly"
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_use_index = False
copybutton_exclude = ".linenos, .gp"
language = "en"

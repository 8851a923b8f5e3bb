"""Settings of the documentation.

    sphinx-build -W docs docs/_build

runs the examples, which takes a few minutes; `-D plot_gallery=0` leaves that out.
"""

import io
import re

from sphinx_gallery.sorting import ExplicitOrder

import sk_mice
from sk_mice import _progress_bar


class UnseenBar(_progress_bar.tqdm):
    """A progress bar whose every step would be a line on the page."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, file=io.StringIO(), **kwargs)


_progress_bar.tqdm = UnseenBar


def link_examples(app, name, source):
    """Let links to examples, which are files in the repository, lead to their pages."""
    source[0] = re.sub(
        r"\(\.\./\.\./examples/(\w+)\.py\)", r"(../auto_examples/\1.rst)", source[0]
    )


def setup(app):
    app.connect("source-read", link_examples)


project = "sk_mice"
author = "The sk_mice developers"
copyright = author
version = release = sk_mice.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx-mathjax-offline",  # equations without a connection
    "numpydoc",
    "myst_parser",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build"]
templates_path = ["_templates"]
highlight_language = "none"  # a block without a language is what a terminal shows
nitpicky = True  # names of ours that a text refers to exist
nitpick_ignore_regex = [
    ("py:.*", r"(os|sklearn|torch)\..*"),  # of others, as plain text: no downloads
    ("py:obj", "(backbone|device)_"),  # set by `fit` alone
]

autosummary_generate = True
autodoc_typehints = "none"  # the docstrings have the types
numpydoc_show_class_members = False  # the templates list them
numpydoc_validation_checks = {
    "all",  # but what follows
    "ES01",  # a summary may say it all
    "EX01",  # an example of a class shows its methods
    "SA01",  # likewise, what to see also
    "PR07",  # a description that the type gives, or another class has
    "RT02",  # `self`, and names of what is returned
    "RT03",
    "PR04",  # parameters "as in `from_estimator`"
    "SS05",  # "Features of images" is no verb
    "GL01",  # the summary stands beside the quotes
    "GL02",
    "GL03",
}
numpydoc_validation_exclude = {"NClustersChoice$"}  # its attributes are its parameters
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3

# From the first clusters to what few need.
EXAMPLES = ["digits", "photographs", "choose_k", "displays", "outliers", "vectors"]
EXAMPLES += ["baseline", "search", "backbone", "resume"]
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "filename_pattern": "/plot_",
    "within_subsection_order": ExplicitOrder([f"plot_{name}.py" for name in EXAMPLES]),
    "ignore_pattern": "/output/",
    "download_all_examples": False,
    "show_memory": False,
    "write_computation_times": False,  # pages that load scripts from elsewhere
}

html_theme = "pydata_sphinx_theme"
html_title = "sk_mice"
html_show_sourcelink = False

"""A report as one HTML page, which needs no other file and no network and contains its data as JSON.

`page_base.html.j2` is what all reports share: colours for light and dark, the elements, and filters whose state is in
the URL's hash. `page` is the report of `verify`, `generator.bench.results_page` that of `bench`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import jinja2

from generator.files.package_data import data
from generator.files.plain_text import representable


def html_page(template: str, carried: Mapping[str, Any], **values: Any) -> str:
    """The page of a template that extends `page_base.html.j2`, in ASCII; `carried` are its values of JSON by id."""
    made = _environment().get_template(template).render(carried=carried, **values)
    # Text outside the JSON may have any character, but the file may be written in any encoding.
    return representable(made).encode("ascii", "xmlcharrefreplace").decode("ascii")


@cache
def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader([data("verify"), data("bench")]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=True,
    )
    made.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    return made

"""Builds self-contained HTML pages, for screen and print.

Text is escaped when it becomes `Markup`. The content security policy of
page.html keeps browsers from loading or running anything that a text contains:
it permits one script, by its hash.
"""

import base64
import hashlib
import html
import pathlib
import string

_PAGE = string.Template(
    pathlib.Path(__file__).with_suffix(".html").read_text(encoding="utf-8")
)
# The page's own script, which needs no "$".
_SCRIPT = _PAGE.template.partition("<script>")[2].partition("</script>")[0]
_HASH = base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()


class Markup(str):
    """Escaped HTML."""


def join(children):
    """Concatenates children to Markup; escapes those that are text."""
    escaped = (
        child if isinstance(child, Markup) else html.escape(str(child))
        for child in children
    )
    return Markup("".join(escaped))


def element(tag, *children, **attributes):
    """Returns an element with children, Markup or text, as Markup.

    An attribute that is None is omitted; `class_` is "class".
    """
    words = [
        f' {name.rstrip("_").replace("_", "-")}="{html.escape(str(value))}"'
        for name, value in attributes.items()
        if value is not None
    ]
    return Markup(f"<{tag}{''.join(words)}>{join(children)}</{tag}>")


def remark(text):
    """Returns a paragraph in a smaller, softer type."""
    return element("p", text, class_="soft")


def section(title, *children, name):
    """Returns a section with a heading, as Markup; `name` is its id."""
    return element("section", element("h2", title), *children, id=name)


def cell(value):
    """Returns a table cell, with right-aligned numbers and wrapped text."""
    if isinstance(value, Markup) and value.startswith("<td"):
        return value
    if isinstance(value, float):
        return element("td", f"{value:.4f}", class_="number")
    if isinstance(value, int):
        return element("td", f"{value:,}", class_="number")
    long = "text" if len(str(value)) > 30 else None
    # Scripts are written from left to right or from right to left.
    return element("td", value, class_=long, dir="auto")


def format_value(value):
    """Formats a setting briefly."""
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)


def number_table(rows):
    """Returns a table of numbers that are texts, aligned to the right.

    Args:
      rows: lists of texts. The first list is the head of the table, and the
        first text of each list is the head of its row.
    """
    head, *body = rows
    return table(
        [
            [name, *(element("td", text, class_="number") for text in texts)]
            for name, *texts in body
        ],
        head=head,
    )


def _row(values):
    first, *rest = values
    return element("tr", element("th", first, scope="row"), *map(cell, rest))


def table(rows, head=(), caption=None, foot=None):
    """Returns a table as Markup, which scrolls if it is too wide.

    Args:
      rows: lists of values; the first value is the row's heading.
      head: headings of the columns, or none.
      caption: caption, or None.
      foot: a last row, which stays there when the table is sorted; or None.
    """
    names = (element("th", name, scope="col") for name in head)
    heads = [element("thead", element("tr", *names))] if head else []
    foots = [element("tfoot", _row(foot))] if foot else []
    body = element("tbody", *map(_row, rows))
    whole = element("table", *heads, body, *foots)
    grid = element("div", whole, class_="wide", tabindex=0)
    if not caption:
        return grid
    # A <caption> would wrap at the table's width.
    return element("figure", element("figcaption", caption), grid)


def page(title, *children):
    """Returns a complete page as a string."""
    return _PAGE.substitute(
        title=html.escape(title), body=join(children), hash=_HASH
    )

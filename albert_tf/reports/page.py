"""Builds self-contained HTML pages, for screen and print.

Text is escaped when it becomes `Markup`. Pages load nothing and run no script.
"""

import html
import string

# Browsers then load nothing, even if a text contains a link.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_PAGE = string.Template("""\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="$policy">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>$style</style>
</head>
<body>
$body
</body>
</html>
""")
_STYLE = """
:root { color-scheme: light dark; --text: #1c1c1c; --page: #fff;
  --soft: #555; --line: #d5d5d5; --shade: 31 119 180; }
@media screen and (prefers-color-scheme: dark) {
  :root { --text: #e4e4e4; --page: #171717; --soft: #aaa; --line: #444;
    --shade: 80 160 220; } }
body { margin: 0 auto; max-width: 60rem; padding: 1rem;
  font: 16px/1.5 system-ui, sans-serif; color: var(--text);
  background: var(--page); }
h1 { margin: 0; line-height: 1.2; overflow-wrap: anywhere; }
h2 { margin: 2rem 0 .5rem; border-bottom: 1px solid var(--line); }
p { margin: .5rem 0; overflow-wrap: anywhere; }
.soft, figcaption { color: var(--soft); font-size: .9rem; }
.plots { display: grid; gap: 1rem;
  grid-template-columns: repeat(auto-fit, minmax(17rem, 1fr)); }
figure { margin: 1rem 0 0; }
.plots figure { margin: 0; break-inside: avoid; }
figure svg { width: 100%; height: auto; max-width: 30rem; }
figure svg text { fill: currentColor; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; margin: .5rem 0; font-size: .9rem; }
th, td { padding: .25rem .75rem .25rem 0; text-align: left;
  vertical-align: top; border-bottom: 1px solid var(--line); }
td.number { text-align: right; white-space: nowrap;
  font-variant-numeric: tabular-nums; }
td.text { min-width: 9rem; overflow-wrap: anywhere; white-space: pre-line; }
tbody th { min-width: 4rem; overflow-wrap: anywhere; }
td.shaded { padding: .5rem 1rem; border: 1px solid var(--page);
  print-color-adjust: exact; -webkit-print-color-adjust: exact;
  background: rgb(var(--shade) / calc(var(--share) * .7)); }
tr { break-inside: avoid; }
ol { margin: 0; padding-left: 1.2rem; }
@media print { body { max-width: none; font-size: 11pt; }
  .wide { overflow: visible; } }
"""


class Markup(str):
    """Escaped HTML."""


def join(children):
    """Concatenates children to Markup; escapes those that are text."""
    return Markup(
        "".join(
            child if isinstance(child, Markup) else html.escape(str(child))
            for child in children
        )
    )


def element(tag, *children, **attributes):
    """Returns an element as Markup.

    Args:
      tag: name of the element.
      *children: Markup or text.
      **attributes: attributes by name; `class_` is "class". None omits one.
    """
    words = [
        f' {name.rstrip("_").replace("_", "-")}="{html.escape(str(value))}"'
        for name, value in attributes.items()
        if value is not None
    ]
    return Markup(f"<{tag}{''.join(words)}>{join(children)}</{tag}>")


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


def number_table(rows):
    """Returns a table of formatted numbers, aligned to the right, as Markup.

    Args:
      rows: lists of texts; the first list has the heads of the columns, and
        each list's first text is the row's.
    """
    head, *body = rows
    return table(
        [
            [name, *(element("td", text, class_="number") for text in texts)]
            for name, *texts in body
        ],
        head=head,
    )


def table(rows, head=(), caption=None):
    """Returns a table as Markup, which scrolls if it is too wide.

    Args:
      rows: lists of values; the first value is the row's heading.
      head: headings of the columns, or none.
      caption: caption, or None.
    """
    parts = []
    if head:
        names = (element("th", name, scope="col") for name in head)
        parts.append(element("thead", element("tr", *names)))
    body = (
        element("tr", element("th", first, scope="row"), *map(cell, rest))
        for first, *rest in rows
    )
    parts.append(element("tbody", *body))
    grid = element("div", element("table", *parts), class_="wide", tabindex=0)
    if not caption:
        return grid
    # A <caption> would wrap at the table's width.
    return element("figure", element("figcaption", caption), grid)


def page(title, *children):
    """Returns a complete page as a string."""
    return _PAGE.substitute(
        policy=html.escape(_POLICY),
        title=html.escape(title),
        style=_STYLE,
        body=join(children),
    )

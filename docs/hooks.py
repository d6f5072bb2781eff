"""Fills in the page of flags when MkDocs builds the site.

A page in the repository would have to repeat every help text; here the texts of
`albert NAME --help` stay in one place.
"""

import dataclasses
import html
import pathlib
import sys

from albert_tf import commands, filesystem, settings


def on_page_markdown(markdown, *, page, **_):
    """Appends the flags of all commands to their page; MkDocs calls this."""
    if page.file.src_uri != "flags.md":
        return markdown
    folder = pathlib.Path(commands.__path__[0])
    names = sorted({p.stem for p in folder.glob("*.py")})
    sections = (describe(n) for n in names if n not in ("__init__", "groups"))
    return "\n".join([markdown, *sections])


def describe(name):
    """Returns the flags of a command as a table in Markdown."""
    _, flags_class = commands.find(name)
    about = sys.modules[flags_class.__module__].__doc__.splitlines()[0]
    rows = [
        f"## {name}\n\n{about}\n",
        "| flag | default | meaning |\n|---|---|---|",
    ]
    for field in sorted(dataclasses.fields(flags_class), key=lambda f: f.name):
        # Not the path of the machine that builds these pages.
        shipped = str(filesystem.shipped_configs())
        default = f"`{field.default}`".replace(shipped, "configs")
        if field.default is None:
            default = ""
        elif field.default is dataclasses.MISSING:
            default = "required"
        text = settings.inherited(flags_class, field.name, "help")
        text = html.escape(text, quote=False)
        text = text.replace("|", "&#124;").replace("*", "&#42;")
        rows.append(f"| `--{field.name.rstrip('_')}` | {default} | {text} |")
    return "\n".join(rows) + "\n"

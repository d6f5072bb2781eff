"""Fills in the page of flags when MkDocs builds the site.

A page in the repository would have to repeat every help text; here the texts of
`albert NAME --help` stay in one place.
"""

import dataclasses
import html
import importlib
import inspect
import pathlib

import albert_tf.commands
from albert_tf import filesystem


def on_page_markdown(markdown, *, page, **_):
    """Appends the flags of all commands to their page; MkDocs calls this."""
    if page.file.src_uri != "flags.md":
        return markdown
    folder = pathlib.Path(albert_tf.commands.__path__[0])
    names = sorted({p.stem for p in folder.glob("*.py")})
    sections = (describe(n) for n in names if n not in ("__init__", "groups"))
    return "\n".join([markdown, *sections])


def describe(name):
    """Returns the flags of a command as a table in Markdown."""
    module = importlib.import_module(f"albert_tf.commands.{name}")
    (flags_class,) = (
        value
        for value in vars(module).values()
        if inspect.isclass(value) and value.__module__ == module.__name__
        if value.__name__.endswith("Flags")
    )
    rows = [
        f"## {name}\n\n{module.__doc__.splitlines()[0]}\n",
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
        text = html.escape(find_help(flags_class, field.name), quote=False)
        text = text.replace("|", "&#124;").replace("*", "&#42;")
        rows.append(f"| `--{field.name.rstrip('_')}` | {default} | {text} |")
    return "\n".join(rows) + "\n"


def find_help(flags_class, name):
    """Returns the help of a flag, which a subclass need not repeat."""
    fields = (vars(c).get("__dataclass_fields__") for c in flags_class.__mro__)
    texts = (f[name].metadata["help"] for f in fields if f and name in f)
    return next(text for text in texts if text)

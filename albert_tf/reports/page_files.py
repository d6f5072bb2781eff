"""Output files of tools that show figures: a page, and the figures as JSON."""

import dataclasses
import json

from albert_tf import filesystem

# How the files begin.
OWN = (b"<!DOCTYPE html>", b'{\n "flags": {')


def check(args, inputs):
    """Checks that the files of `groups.PageFlags` can be written.

    Args:
      args: a `groups.PageFlags`.
      inputs: as for `filesystem.check_outputs`.
    """
    outputs = {
        f"--{name}": [path]
        for name in ("output_file", "json_file")
        if (path := getattr(args, name))
    }
    filesystem.check_outputs(outputs, inputs)


def is_own(path):
    """Returns whether a file may be from `write`."""
    is_likely = path.endswith((".html", ".json"))
    return is_likely and filesystem.read_file(path).startswith(OWN)


def write(args, figures, build_page):
    """Writes the files that the flags name, and says so.

    Args:
      args: a `groups.PageFlags`. The JSON file has them as `flags`.
      figures: a dict that can be written as JSON.
      build_page: function that returns the page.
    """
    if args.json_file:
        values = {"flags": dataclasses.asdict(args), **figures}
        text = json.dumps(values, indent=1) + "\n"
        filesystem.write_file(args.json_file, text)
        print(f"Wrote {args.json_file}.")
    if args.output_file:
        filesystem.write_file(args.output_file, build_page())
        print(f"Wrote {args.output_file}.")

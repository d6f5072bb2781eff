"""The output files of `groups.PageFlags`: a page, and its figures as JSON."""

import dataclasses
import json

from albert_tf import filesystem

# How the files begin.
OWN = (b"<!DOCTYPE html>", b'{\n "flags": {')


def check(args, inputs):
    """Checks that the files can be written, as `filesystem.check_outputs`."""
    outputs = {
        "--output_file": [args.output_file] if args.output_file else [],
        "--json_file": [args.json_file] if args.json_file else [],
    }
    filesystem.check_outputs(outputs, inputs)


def is_own(path):
    """Returns whether a file may be from `write`."""
    is_likely = path.endswith((".html", ".json"))
    return is_likely and filesystem.read_file(path).startswith(OWN)


def write(args, figures, build_page):
    """Writes the files that the flags name, and prints their names.

    Args:
      args: a `groups.PageFlags`, which is written to the JSON file, too.
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

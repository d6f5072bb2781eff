"""Measures how light the package is: lines, arguments, frames, repeated names.

  python -m benchmarks.house            # this checkout
  python -m benchmarks.house --root=..  # another one

Lines are all lines of Python files, with comments and blank lines. Frames are
those of our own functions between the program of `run_pretraining` and the
call that computes gradients, on records made for it.
"""

import argparse
import ast
import collections
import json
import os
import pathlib
import re
import subprocess
import sys

MAX_ARGUMENTS = 8
# Prints the stack of the first gradient of a run of two steps.
PROBE = """
import json, pathlib, sys, tempfile, traceback
import numpy as np, tensorflow as tf
from albert_tf.commands.run_pretraining import PretrainingFlags
from albert_tf.data.pretraining import records
from albert_tf.programs import run_pretraining

folder = pathlib.Path(tempfile.mkdtemp())
shapes = records.pretraining_features(16, 2).items()
rows = {n: np.ones([4, *shape], kind) for n, (shape, kind) in shapes}
path = folder / "a.tfrecord"
records.write_records(str(path), records.encode_examples(rows))
sizes = {"vocab_size": 30, "hidden_size": 8, "num_attention_heads": 2}
(folder / "config.json").write_text(json.dumps(sizes))
compute = tf.GradientTape.gradient

def record(*args, **kwargs):
    stack = traceback.extract_stack()[:-1]
    # AutoGraph writes functions anew, with a prefix, to temporary files.
    own = [f.name.removeprefix("tf__") for f in stack
           if "/albert_tf/" in f.filename or f.name.startswith("tf__")]
    print("FRAMES", json.dumps(own[own.index("run") + 1:]))
    tf.GradientTape.gradient = compute
    return compute(*args, **kwargs)

tf.GradientTape.gradient = record
run_pretraining.run(PretrainingFlags(
    albert_config_file=str(folder / "config.json"), input_file=str(path),
    output_dir=str(folder / "out"), train_batch_size=4, num_train_steps=2,
    num_warmup_steps=0))
"""


def read_files(root):
    """Returns dict of path below the package -> text."""
    package = root / "albert_tf"
    return {
        path.relative_to(package): path.read_text(encoding="utf-8")
        for path in sorted(package.rglob("*.py"))
    }


def count_lines(files):
    """Returns the number of lines of each room."""
    counts: collections.Counter = collections.Counter()
    for path, text in files.items():
        counts["/".join(path.parts[:-1]) or "top"] += len(text.splitlines())
    return counts


def find_functions(files):
    """Yields (name, number of arguments without self) of each function."""
    for path, text in files.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                found = node.args
                given = found.posonlyargs + found.args + found.kwonlyargs
                count = sum(a.arg not in ("self", "cls") for a in given)
                yield f"{path}:{node.name}", count + (found.kwarg is not None)


def find_repeated_settings(files):
    """Returns names of fields that several classes give the same default."""
    places = collections.defaultdict(set)
    for path, text in files.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef):
                for field in node.body:
                    if isinstance(field, ast.AnnAssign) and field.value:
                        value = field.value
                        if isinstance(value, ast.Call) and value.args:
                            value = value.args[0]
                        if isinstance(value, ast.Constant):
                            key = ast.unparse(field.target), repr(value.value)
                            places[key].add(f"{path}:{node.name}")
    return {key: sorted(where) for key, where in places.items()}


def find_frames(root):
    """Returns the names of our functions between program and gradient."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE],
        cwd=root,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.search("FRAMES (.*)", done.stdout)
    return json.loads(found[1]) if found else done.stderr.splitlines()[-3:]


def find_imports(files):
    """Returns a Counter of (room that imports, room) pairs."""
    arrows: collections.Counter = collections.Counter()
    rooms = {path.parts[0] for path in files if len(path.parts) > 1}
    for path, text in files.items():
        own = path.parts[0] if len(path.parts) > 1 else "top"
        for node in ast.walk(ast.parse(text)):
            module = getattr(node, "module", None) or ""
            if isinstance(node, ast.ImportFrom) and module.startswith(
                "albert_tf"
            ):
                for alias in node.names:
                    parts = f"{module}.{alias.name}".split(".")[1:]
                    other = parts[0] if parts[0] in rooms else "top"
                    arrows[own, other] += own != other
    return arrows


def main():
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path())
    root = parser.parse_args().root.resolve()
    files = read_files(root)
    lines = count_lines(files)
    lab = sum(n for room, n in lines.items() if room.split("/")[0] == "lab")
    print(f"lines of albert_tf: {lines.total()}, of these lab: {lab}")
    for room, number in sorted(lines.items()):
        print(f"  {number:6} {room}")
    counts = collections.Counter(dict(find_functions(files)))
    many = [
        f"{n} {name}" for name, n in counts.most_common() if n > MAX_ARGUMENTS
    ]
    print(f"functions of more than {MAX_ARGUMENTS} arguments: {len(many)}")
    for row in many:
        print(f"  {row}")
    repeated = {
        key: where
        for key, where in find_repeated_settings(files).items()
        if len(where) > 1
    }
    print(
        f"fields of equal name and default in several classes: {len(repeated)}"
    )
    for (name, value), where in sorted(repeated.items()):
        print(f"  {name} = {value}: {', '.join(where)}")
    frames = find_frames(root)
    print(f"frames between program and gradient: {len(frames)}")
    print(f"  {' > '.join(frames)}")
    arrows = find_imports(files)
    print(f"arrows between rooms: {len(+arrows)}")
    for (own, other), number in sorted((+arrows).items()):
        print(f"  {own} -> {other}: {number}")


if __name__ == "__main__":
    main()

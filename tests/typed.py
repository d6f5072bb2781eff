"""Types the README into a shell, line by line, in a fresh copy.

    python -m tests.typed            # installs into a new .venv first
    python -m tests.typed --shared   # with this repository's .venv

Every block of the README that is marked `sh` or `python` runs as printed, from
top to bottom, in one shell. Blocks marked `sh download` need files that no
package index has, and are left out; so is `make test`, which runs this. The
quickstart trains for 60 steps instead of 3,000: its Makefile takes
QUICKSTART_ARGS from the environment.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).parent.parent
QUICKSTART_ARGS = "--num_train_steps=60"
LEFT_OUT = ("make test",)


def read_blocks(text):
    """Yields what a shell is given for each block that can run.

    Args:
      text: of a page in Markdown.
    """
    for kind, block in re.findall(r"```(.*)\n((?:.*\n)*?)```", text):
        if kind == "sh":
            for command in block.replace("\\\n", "\\\0").splitlines():
                if command and command not in LEFT_OUT:
                    yield command.replace("\0", "\n")
        elif kind == "python":
            yield f"python - <<'END'\n{block}END"


def is_installed():
    """Whether `make setup` would change nothing in this repository's .venv."""
    return not subprocess.call(["make", "--question", "setup"], cwd=ROOT)


def copy_repository(target):
    """Copies what git knows of this repository, and what it would add."""
    listed = ["git", "ls-files", "-z", "-co", "--exclude-standard"]
    names = subprocess.check_output(listed, cwd=ROOT, text=True).split("\0")
    for name in filter(None, names):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


def type_all(folder, blocks):
    """Runs blocks in one shell; returns the seconds of each.

    Args:
      folder: where the shell begins.
      blocks: what `read_blocks` yields.

    Raises:
      RuntimeError: if one of them fails.
    """
    end = "--- end of a block"
    seconds = []
    environment = {
        name: os.environ[name]
        for name in ("PATH", "HOME")
        if name in os.environ
    }
    environment["QUICKSTART_ARGS"] = QUICKSTART_ARGS
    with subprocess.Popen(
        ["bash", "-e"],
        cwd=folder,
        env=environment | {k: v for k, v in os.environ.items() if "PIP_" in k},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as shell:
        for block in blocks:
            print(f"$ {block}", flush=True)
            start = time.monotonic()
            shell.stdin.write(f"{block}\necho '{end}'\n")
            shell.stdin.flush()
            for line in shell.stdout:
                if line == f"{end}\n":
                    break
                print(line, end="", flush=True)
            else:
                raise RuntimeError(f"This failed:\n{block}")
            seconds.append(time.monotonic() - start)
        shell.stdin.close()
    return seconds


def main(has_shared_venv):
    """Types the README; returns rows of (seconds, block)."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary, "albert_tf")
        folder.mkdir()
        copy_repository(folder)
        if has_shared_venv:
            if not is_installed():
                raise RuntimeError("The .venv is out of date: run make setup.")
            (folder / ".venv").symlink_to(ROOT / ".venv")
        text = (folder / "README.md").read_text(encoding="utf-8")
        blocks = list(read_blocks(text))
        return list(zip(type_all(folder, blocks), blocks, strict=True))


if __name__ == "__main__":
    rows = main("--shared" in sys.argv[1:])
    print("\nseconds")
    for seconds, block in rows:
        print(f"{seconds:7.1f}  {block.splitlines()[0]}")

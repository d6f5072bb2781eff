"""Flags: each case is a script of its own, as absl's flags are global."""

import dataclasses
import os
import pathlib
import re
import signal
import subprocess
import sys
import textwrap

import pytest
from absl import flags as absl_flags

from albert_tf import flags

ROOT = pathlib.Path(__file__).parent.parent

SCRIPT = '''
    """Trains nothing."""
    import dataclasses
    import json
    import pathlib
    import time
    from typing import Literal

    from albert_tf import flags

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class TrainFlags(flags.Flags):
        input_file: str = flags.flag(required=True, help="Text to read.")
        output_dir: str | None = flags.flag(help="Folder to write.")
        learning_rate: float = flags.flag(
            5e-5, "Peak learning rate.", at_least=0
        )
        max_steps: int | None = flags.flag(
            None, "Steps, or all.", at_least=-1, at_most=99
        )
        do_train: bool = flags.flag(False, "Whether to train.")
        optimizer: Literal["adamw", "lamb"] = flags.flag("lamb", "Optimizer.")
        text: str | None = flags.flag(help="Lines.", has_lines=True)

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class RaceFlags(TrainFlags):
        learning_rate: float = flags.flag(1e-5)

    def run(args):
        print(dataclasses.astuple(args))
        if args.max_steps == 0:
            raise ValueError("max_steps is 0.")
        if args.max_steps == -1:
            json.loads("not JSON")
        pathlib.Path(args.input_file).read_text()
        if args.max_steps == 99:
            try:
                print("ready", flush=True)
                time.sleep(60)
            except KeyboardInterrupt:
                print("kept", flush=True)
                raise
        return "dropped"

    if __name__ == "__main__":
        flags.launch(run, RaceFlags)
'''


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(SCRIPT))

    def call(*args):
        command = [sys.executable, str(path), *args]
        env = {"PYTHONPATH": str(ROOT)}
        return subprocess.run(
            command, capture_output=True, text=True, env=env, check=False
        )

    call.path = path
    return call


def test_fields_have_the_values_of_the_command_line(script):
    done = script(
        f"--input_file={__file__}",
        "--do_train",
        "--max_steps=7",
        "--optimizer=adamw",
    )
    expected = (__file__, None, 1e-5, 7, True, "adamw", None)
    assert done.stdout == f"{expected}\n", done.stderr


def test_texts_given_twice_are_lines_and_other_flags_are_warned_of(script):
    words = ["--text=a", "--text=b\nc", "--max_steps=7", "--max_steps=8"]
    done = script(f"--input_file={__file__}", *words)
    assert "8, False, 'lamb', 'a\\nb\\nc')" in done.stdout
    (line,) = done.stderr.splitlines()
    assert line.endswith("--max_steps is given twice; the last one counts.")
    done = script(f"--input_file={__file__}", "--text=")
    assert "False, 'lamb', '')" in done.stdout and not done.stderr


def test_the_return_value_of_run_is_not_the_exit_code(script):
    assert script(f"--input_file={__file__}").returncode == 0


def test_help_lists_the_flags_with_inherited_help(script):
    done = script("--help")
    assert done.returncode == 0
    text = done.stdout
    assert "Trains nothing." in text
    assert "--learning_rate: Peak learning rate. Range: at least 0." in text
    assert "<adamw|lamb>" in text


def test_help_begins_with_what_is_required_and_ends_with_what_is_ignored():
    class Base(flags.Flags):
        """Data; what is read."""

        text: str = flags.flag(required=True, help="Text to read.")
        size: int = flags.flag(0, "Size of a part.", at_least=0)
        old: bool = flags.flag(True, "Ignored: it does nothing.")

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Whole(dataclasses.dataclass(frozen=True, kw_only=True)(Base)):
        """What the program does."""

        size: int = flags.flag(3)
        quick: bool = flags.flag(False, "Be quick.")

    values = absl_flags.FlagValues()
    flags._define(Whole, values)
    said = flags.format_help(Whole, values)
    assert said.split(__doc__.strip())[1].strip().splitlines() == [
        "Required:",
        "  --text: Text to read.",
        "",
        "What the program does:",
        "  --[no]quick: Be quick.",
        "",
        "Data:",
        "  --size: Size of a part. Range: at least 0. (default: 3)",
        "",
        "Without effect:",
        "  --[no]old: Ignored: it does nothing.",
        "",
        "--flagfile=FILE reads flags from a file, one on each line.",
    ]


def test_flags_before_a_flagfile_are_said_to_be_replaced(script, tmp_path):
    (tmp_path / "a.flags").write_text("--max_steps=3\n--nodo_train\n")
    (tmp_path / "b.flags").write_text("--max_steps=4\n")
    first, second = (f"{tmp_path}/{name}.flags" for name in "ab")
    files = [f"--flagfile={first}", "--flagfile", second]
    words = [f"--input_file={__file__}", "--max_steps=5", "--do_train"]
    done = script(*words, *files)
    assert ", 4, False, " in done.stdout
    lines = done.stderr.splitlines()
    assert len(lines) == 3 and "--do_train is given before" in lines[0]
    for line in lines[1:]:
        assert "--max_steps is given before --flagfile, whose value" in line
    # One recipe may refine another.
    done = script(words[0], *files, *words[2:])
    assert ", 4, True, " in done.stdout and not done.stderr


def test_flags_after_a_flagfile_override_it(script, tmp_path):
    recipe = tmp_path / "recipe.flags"
    recipe.write_text("# A recipe.\n--learning_rate=3e-5\n--max_steps=3\n")
    done = script(
        f"--flagfile={recipe}", f"--input_file={__file__}", "--max_steps=5"
    )
    assert "3e-05, 5," in done.stdout


@pytest.mark.parametrize(
    "args, message",
    [
        (["--input_file=x", "--do_train", "False"], "got ['False']"),
        ([], "--input_file (Text to read.)"),
        (["--input_file=/no/such"], "/no/such"),
        (["--input_file=x", "--max_steps=0"], "max_steps is 0."),
        (["--input_file=x", "--optimizer=sgd"], "<adamw|lamb>"),
        (["--input_fil=x"], "Did you mean: input_file"),
        (["--input_file="], "--input_file is empty"),
        (["--input_file=x", "--learning_rate=nan"], "rate=nan; wanted at lea"),
        (["--input_file=x", "--learning_rate=inf"], "rate=inf; wanted at lea"),
        (
            ["--input_file=x", "--max_steps=-2"],
            "--max_steps=-2; wanted at least -1 and at most 99.",
        ),
    ],
)
def test_a_mistake_of_the_user_is_one_clear_message(script, args, message):
    done = script(*args)
    assert done.returncode != 0
    assert message in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "words", [["--nodo_train=true"], ["--flagfile=latin.flags"]]
)
def test_what_absl_cannot_parse_is_one_line(script, monkeypatch, words):
    monkeypatch.chdir(script.path.parent)
    pathlib.Path("latin.flags").write_bytes(
        "--output_dir=\xe9\n".encode("latin1")
    )
    done = script(f"--input_file={__file__}", *words)
    assert done.returncode == 1 and not done.stdout
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"{script.path}: ")


def test_verbosity_shows_the_traceback_of_an_error(script):
    done = script("--input_file=x", "--max_steps=0", "--verbosity=1")
    assert done.returncode != 0
    assert "Traceback" in done.stderr


def test_the_traceback_of_an_unexpected_error_is_in_a_file(script):
    done = script("--input_file=x", "--max_steps=-1")
    assert done.returncode == 1
    assert "JSONDecodeError" in done.stderr
    assert "Traceback" not in done.stderr
    path = re.search(r"traceback in (\S+)", done.stderr)[1]
    assert 'json.loads("not JSON")' in pathlib.Path(path).read_text()
    pathlib.Path(path).unlink()


def test_a_flag_without_help_is_refused():
    @dataclasses.dataclass(frozen=True)
    class NoHelp:
        steps: int = flags.flag(3)

    with pytest.raises(ValueError, match=r"NoHelp\.steps has no help"):
        flags.launch(print, NoHelp)


def test_a_path_that_the_shell_did_not_expand_is_refused(monkeypatch):
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class PathFlags(flags.Flags):
        file_: str | None = flags.flag(help="A file.")
        text: str | None = flags.flag(help="Lines.", has_lines=True)
        paragraph: str | None = flags.flag(help="A text.")

    monkeypatch.setenv("HOME", "/home/me")
    with pytest.raises(ValueError, match=r"^--file=~/a b:.*=/home/me/a b\.$"):
        PathFlags(file_="~/a b")
    for name, value in (
        ("file_", "./~/a"),
        ("text", "~/a is a path."),
        ("paragraph", "~/a is a path."),
    ):
        assert getattr(PathFlags(**{name: value}), name) == value


@pytest.mark.parametrize("value", [None, 3, b"a"], ids=str)
def test_a_text_is_a_string_or_a_path(value):
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class FileFlags(flags.Flags):
        file: str = flags.flag(required=True, help="A file.")

    path = pathlib.Path("a")
    assert FileFlags(file=path).file == path
    with pytest.raises(ValueError, match=rf"^--file={value!r}; wanted str\.$"):
        FileFlags(file=value)


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGTERM, 143), (signal.SIGHUP, 143), (signal.SIGINT, 130)],
)
def test_a_signal_ends_the_program_after_work_is_saved(script, number, status):
    command = [sys.executable, str(script.path)]
    command += [f"--input_file={__file__}", "--max_steps=99"]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": str(ROOT)},
        # A shell's background job would ignore SIGINT.
        preexec_fn=lambda: signal.signal(
            signal.SIGINT, signal.default_int_handler
        ),
    ) as process:
        while process.stdout.readline() not in ("ready\n", ""):
            pass
        process.send_signal(number)
        shown, errors = process.communicate()
    assert process.returncode == status
    assert shown == "kept\n" and "Traceback" not in errors


def test_a_signal_that_comes_in_a_finalizer_is_not_lost(tmp_path):
    """Python ignores what a finalizer raises."""
    (tmp_path / "script.py").write_text(
        textwrap.dedent(
            """
            import dataclasses
            import os
            import signal
            import time

            from albert_tf import flags


            class Dying:
                def __del__(self):
                    os.kill(os.getpid(), signal.SIGTERM)
                    time.sleep(0)


            @dataclasses.dataclass(frozen=True, kw_only=True)
            class NoFlags(flags.Flags):
                '''None.'''


            def run(args):
                Dying()
                print("alive", flush=True)
                time.sleep(30)


            flags.launch(run, NoFlags)
            """
        )
    )
    done = subprocess.run(
        [sys.executable, str(tmp_path / "script.py")],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(ROOT)},
    )
    assert (done.returncode, done.stdout) == (143, "alive\n")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("redirected", "status", "said"),
    [
        (">&-", 0, ""),
        ("2>&-", 0, ""),
        (">/dev/full", 1, "Standard output: The disk is full."),
    ],
)
def test_standard_streams_may_be_closed_or_full(redirected, status, said):
    command = f"{sys.executable} -m albert_tf --version {redirected}"
    done = subprocess.run(
        command,
        shell=True,
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": ""},
    )
    assert done.returncode == status
    assert done.stderr.startswith(said) and "Traceback" not in done.stderr

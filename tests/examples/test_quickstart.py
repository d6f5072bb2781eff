"""The quickstart: which steps it runs and which it skips."""

import contextlib
import dataclasses
import importlib
import inspect
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys

import pytest

import collect_english
import quickstart
from albert_tf import __main__ as commands
from albert_tf import commands as albert_commands
from albert_tf import flags
from albert_tf.model.config import AlbertConfig
from tests.conftest import ROOT, started


@pytest.fixture
def ran(monkeypatch, tmp_path):
    """Records command lines instead of running them; returns their list."""
    ran = []

    class Program(contextlib.nullcontext):
        returncode = 0

        def __init__(self, command, **_):
            super().__init__(self)
            ran.append(command[1:])

        def wait(self):
            pass

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(subprocess, "Popen", Program)
    return ran


@pytest.mark.parametrize("recipe", quickstart.RECIPES)
def test_every_program_and_config_that_it_names_exists(
    recipe, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    args = quickstart.QuickstartFlags(recipe=recipe)
    steps = [*quickstart.build_steps("out", args)]
    assert not pathlib.Path("out").exists()
    named = set()
    for step in steps:
        if step.arguments[:2] == list(quickstart.ALBERT):
            named.add(step.arguments[2])
        else:
            assert pathlib.Path(step.arguments[0]).is_file()
    assert len(named) == 4
    assert named <= commands.PROGRAMS.keys() | commands.TOOLS.keys()
    # Model, vocabulary and records fit each other, as shipped.
    texts = [" ".join(step.arguments) for step in steps]
    config = AlbertConfig.from_json_file(
        re.search(r"--albert_config_file=(\S+)", texts[4])[1]
    )
    assert f"--vocab_size={config.vocab_size}" in texts[1]
    length = int(re.search(r"--max_seq_length=(\d+)", texts[2])[1])
    assert length <= config.max_position_embeddings
    flagfile = pathlib.Path(re.search(r"--flagfile=(\S+)", texts[4])[1])
    assert flagfile.name == f"{recipe}.flags" and flagfile.is_file()


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"text": "a b/*.txt", "vocab_size": 500, "recipe": "hour"},
        {"num_train_steps": 20000},
    ],
)
def test_the_next_steps_can_be_typed(given):
    """With the text and the vocabulary that were given."""
    args = quickstart.QuickstartFlags(**given)
    said = quickstart.describe_next_steps("my out", args)
    lines = [line[24:] for line in said.splitlines() if "--" in line]
    taken = []
    for line in lines:
        _, *words = shlex.split(line)
        if words[:2] == list(quickstart.ALBERT):
            _, flags_class = albert_commands.find(words[2])
            words = words[2:]
        else:
            assert pathlib.Path(words[0]).is_file()
            script = importlib.import_module(pathlib.Path(words[0]).stem)
            (flags_class,) = (
                value
                for value in vars(script).values()
                if inspect.isclass(value)
                and value.__module__ == script.__name__
                and issubclass(value, flags.Flags)
            )
        assert not flags.run_command(taken.append, flags_class, words[1:])
    assert len(taken) == len(lines) == (5 if args.text else 7)
    assert taken[0].init_checkpoint == "my out/model"
    assert ("TASK.json" in said) == bool(args.text)
    longer, *larger, own = taken[-2 if args.text else -3 :]
    assert longer.text == args.text and own.text == "FILES"
    assert {x.vocab_size for x in taken[-2:]} == {args.vocab_size}
    assert longer.recipe == args.recipe
    assert (
        longer.num_train_steps
        == {"hour": 15_900, "ten_minutes": 3 * (args.num_train_steps or 3000)}[
            args.recipe
        ]
    )
    assert [x.recipe for x in larger] == ([] if args.text else ["hour"])


def test_the_readme_continues_the_fine_tuning_that_it_prints(monkeypatch):
    monkeypatch.chdir(ROOT)
    args = quickstart.QuickstartFlags()
    said = quickstart.describe_fine_tuning(args.output_dir, args, "python")
    block = pathlib.Path("README.md").read_text().partition("Fine-tune that")
    block = block[2].partition("```sh\n")[2].partition("```")[0]
    documented = shlex.split(block.replace("\\\n", ""))
    printed = shlex.split(said)
    assert "examples/speech_eras.py" in printed
    assert set(printed) - set(documented) == {"-m", "albert_tf"}
    more = {x.partition("=")[0] for x in set(documented) - set(printed)}
    assert more == {"albert", "--do_predict", "--export_text_dir"}


def test_own_text_is_divided_and_not_filtered(tmp_path):
    documents = [[f"Ärzte {i} <b>", "kurz"] for i in range(41)]
    text = "\n\n".join("\n".join(lines) for lines in documents)
    (tmp_path / "own.txt").write_text(text)
    args = quickstart.QuickstartFlags(text=str(tmp_path / "own.txt"))
    step = next(quickstart.build_steps(str(tmp_path / "out"), args))
    subprocess.run([sys.executable, *step.arguments], check=True)
    parts = {
        name: (tmp_path / f"out/text/{name}.txt").read_text().split("\n\n")
        for name in ("train", "heldout")
    }
    assert len(parts["train"]) == 38 and len(parts["heldout"]) == 3
    assert parts["heldout"][0] == "Ärzte 0 <b>\nkurz"
    (tmp_path / "short.txt").write_text("one\n\ntwo\n")
    with pytest.raises(ValueError, match="has 2 documents; wanted 20"):
        collect_english.read_own([tmp_path / "short.txt"])


def test_blank_files_and_lines_are_no_documents(tmp_path):
    (tmp_path / "blank.txt").write_text(" \n\n")
    (tmp_path / "own.txt").write_text("a\n \nb\n\n\n" * 20)
    found = collect_english.read_own(sorted(tmp_path.glob("*.txt")))
    assert found == [["a"], ["b"]] * 20


def test_own_text_may_be_in_any_form_of_pretraining_data(tmp_path):
    article = '<doc id="1" title="T">\nT\n\na\u2028b\n\nc\n</doc>\n'
    (tmp_path / "wiki.txt").write_text(article * 20)
    found = collect_english.read_own([tmp_path / "wiki.txt"])
    assert found == [["a\u2028b", "c"]] * 20


def test_changed_text_is_divided_again_until_it_has_a_vocabulary(tmp_path):
    own, out = tmp_path / "own.txt", tmp_path / "out"
    held_out = out / "text" / "heldout.txt"
    own.write_text("a\n\n" * 20)
    args = quickstart.QuickstartFlags(text=str(own))
    quickstart.check_source(str(out), args)
    held_out.write_text("a")
    quickstart.check_source(str(out), args)
    assert held_out.exists()
    own.write_text("a\n\n" * 30)
    quickstart.check_source(str(out), args)
    assert not held_out.exists()
    held_out.write_text("a")
    (out / "vocab.model").touch()
    quickstart.check_source(str(out), args)
    with pytest.raises(ValueError, match="--text was /.*own.txt, is English"):
        quickstart.check_source(str(out), quickstart.QuickstartFlags())
    for change, message in (
        ({"keep_accents": True}, "--keep_accents was False, is True"),
        ({"recipe": "hour"}, "was ten_minutes, is hour, --vocab_size was 8000"),
    ):
        other = dataclasses.replace(args, **change)
        with pytest.raises(ValueError, match=message):
            quickstart.check_source(str(out), other)
    # The default, typed.
    same = dataclasses.replace(args, vocab_size=8000)
    quickstart.check_source(str(out), same)
    own.write_text("a\n\n" * 40)
    with pytest.raises(ValueError, match="the files of --text have changed"):
        quickstart.check_source(str(out), args)
    assert held_out.exists()


@pytest.mark.parametrize("name", ["train", "heldout"])
def test_no_file_of_the_user_is_replaced(name, tmp_path):
    own = tmp_path / f"own/text/{name}.txt"
    own.parent.mkdir(parents=True)
    own.write_text("a\n\n" * 20)
    (tmp_path / "link.txt").symlink_to(own)
    out = str(tmp_path / "own")
    for text, message in (
        (own, "--output_dir would overwrite .*, which --text reads"),
        (tmp_path / "link.txt", "which --text reads as .*link.txt"),
        (None, f"{name}.txt already exists, and the quickstart did not"),
    ):
        args = quickstart.QuickstartFlags(
            output_dir=out, text=text and str(text)
        )
        with pytest.raises(ValueError, match=message):
            quickstart.run(args)
    assert list((tmp_path / "own").rglob("*.*")) == [own]
    assert own.read_text() == "a\n\n" * 20


def test_a_note_without_recipe_and_casing_is_of_the_defaults(tmp_path):
    (tmp_path / "own.txt").write_text("a\n\n" * 20)
    args = quickstart.QuickstartFlags(text=str(tmp_path / "own.txt"))
    quickstart.check_source(str(tmp_path), args)
    note = tmp_path / "text" / "source.json"
    values = json.loads(note.read_text())
    assert values.pop("recipe") == "ten_minutes"
    values |= {"do_lower_case": None, "keep_accents": None}
    note.write_text(json.dumps(values))
    (tmp_path / "vocab.model").touch()
    quickstart.check_source(str(tmp_path), args)
    other = dataclasses.replace(args, recipe="hour", vocab_size=8000)
    with pytest.raises(ValueError, match="--recipe was ten_minutes, is hour"):
        quickstart.check_source(str(tmp_path), other)


def test_own_text_has_its_own_casing_vocabulary_and_sentences(
    monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "heldout.txt").write_text(
        "Die Ärzte behandelten gestern viele Kranke.\n\nkurz\n"
    )
    args = quickstart.QuickstartFlags(
        text="own.txt", vocab_size=900, do_lower_case=False, keep_accents=True
    )
    steps = [*quickstart.build_steps(".", args)]
    casing = ["--do_lower_case=false", "--keep_accents=true"]
    for step in steps[1:4]:
        assert set(casing) <= set(step.arguments)
    assert "--vocab_size=900" in steps[1].arguments
    (name,) = (a for a in steps[4].arguments if "albert_config_file" in a)
    config = json.loads(pathlib.Path(name.partition("=")[2]).read_text())
    assert config["vocab_size"] == 900
    assert steps[5].title.endswith("held-out text: behandelten")
    text = "--text=Die Ärzte [MASK] gestern viele Kranke."
    assert text in steps[5].arguments


def test_text_without_words_has_masks_too():
    text = "今日は天気がとても良いので公園まで散歩に行きました"
    words, masked = quickstart.mask_words(text)
    (word,) = words
    assert masked.replace("[MASK]", word) == text and len(word) == 1
    for other, word in (
        ("中华人民共和国是世界上人口最多的国家之一，位于东亚。", "口"),
        ("यह भारत एक विशाल देश है और सुंदर है।", "विशाल"),
    ):
        assert quickstart.mask_words(other)[0] == [word]
    assert quickstart.mask_words("1, 2, 3, 4, 5, 6, 7, 8, 9")[1] == "[MASK]"
    assert quickstart.mask_words("short") == ([], "[MASK]")
    assert len(quickstart.mask_words(text * 20)[1]) < 128


def test_a_step_whose_product_exists_is_skipped(ran, tmp_path):
    step = quickstart.Step("Make it", ["make.py"], "out/made.txt")
    quickstart.run_step(step)
    (tmp_path / "out").mkdir()
    (tmp_path / "out/made.txt").touch()
    quickstart.run_step(step)
    assert ran == [["make.py"]]


def test_a_step_without_a_product_is_always_run(ran):
    step = quickstart.Step("Train", ["train.py"])
    quickstart.run_step(step)
    quickstart.run_step(step)
    assert ran == [["train.py"], ["train.py"]]


def test_the_chain_stops_where_a_program_fails(tmp_path, capsys):
    failing = quickstart.Step("Fail", ["-c", "raise SystemExit(3)"])
    with pytest.raises(SystemExit, match="rerun the same command"):
        quickstart.run_step(failing)
    assert "-c 'raise SystemExit(3)'" in capsys.readouterr().out


SAVES_AT_CTRL_C = """
import pathlib, sys, time
try:
    print("started", flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    time.sleep(1)
    pathlib.Path(sys.argv[1]).write_text("saved")
    sys.exit(130)
"""


def test_ctrl_c_leaves_the_program_time_to_save(tmp_path):
    saved = tmp_path / "saved"
    arguments = ["-c", SAVES_AT_CTRL_C, str(saved)]
    code = (
        "import quickstart\n"
        f"quickstart.run_step(quickstart.Step('Run', {arguments!r}))"
    )
    with started(code, cwd=ROOT / "examples", start_new_session=True) as chain:
        os.killpg(chain.pid, signal.SIGINT)
        chain.communicate(timeout=30)
    assert saved.read_text() == "saved"


def test_paths_are_shown_relative_to_the_current_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert quickstart.as_typed(tmp_path / "out/model") == "out/model"
    outside = pathlib.Path(tmp_path.anchor) / "elsewhere"
    assert quickstart.as_typed(outside) == str(outside)


def test_the_table_compares_the_first_and_the_last_evaluation(tmp_path):
    path = tmp_path / "metrics.jsonl"
    rows = [
        ("eval", 0.0, 0.5),
        ("eval", 0.1, 0.52),
        ("eval", 0.25, 0.625),
        ("train", 0.9, 0.9),
    ]
    path.write_text(
        "".join(
            json.dumps(
                {
                    "split": split,
                    "step": 0,
                    "masked_lm_accuracy": words,
                    "sentence_order_accuracy": order,
                }
            )
            + "\n"
            for split, words, order in rows
        )
    )
    table = quickstart.describe_progress(path).splitlines()
    assert table[2].split() == "masked word accuracy 0.0% 25.0%".split()
    assert table[3].split() == "sentence order accuracy 50.0% 62.5%".split()

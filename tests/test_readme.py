"""What the documentation says to type can be typed."""

import dataclasses
import importlib.util
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import types

import numpy as np
import pytest

from albert_tf import commands as albert_commands
from albert_tf import flags
from albert_tf.commands.embed import EmbedFlags
from albert_tf.programs import embed
from albert_tf.weights import downloads
from tests import tiny, typed

ROOT = pathlib.Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = ["README.md", "CONTRIBUTING.md"]
PAGES += [str(p.relative_to(ROOT)) for p in sorted(ROOT.glob("docs/**/*.md"))]


def commands():
    """Rows of page and command: what the pages say to type, lines joined."""
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        blocks = re.findall(r"```sh.*\n((?:.*\n)*?)```", text)
        lines = re.findall(r"^    (.*)$", text, re.M)
        joined = "\n".join([*blocks, *lines]).replace("\\\n", " ")
        for line in joined.splitlines():
            if re.match(r"python \w+\.py -|albert \w+ -", line):
                yield page, line


def flags_of(program):
    """The names of a program's flags."""
    _, flags_class = albert_commands.find(program)
    names = (field.name for field in dataclasses.fields(flags_class))
    return {*names, "flagfile"}


@pytest.mark.parametrize(("page", "command"), [*commands()])
def test_every_command_is_accepted(page, command, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)  # Recipes are relative paths.
    _, program, *words = shlex.split(command, comments=True)
    if "..." in command or "--help" in words:
        pytest.skip("not a whole command")
    _, flags_class = albert_commands.find(program.removesuffix(".py"))
    taken = []
    assert not flags.run_command(taken.append, flags_class, words), (
        capsys.readouterr().err
    )
    assert isinstance(taken[0], flags_class)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_one_title(page):
    # The site takes any line that begins with "#" for a heading, also one
    # that begins with the number of an issue, and lists only what is below
    # the last title.
    text = (ROOT / page).read_text(encoding="utf-8")
    prose = re.sub(r"```.*?```", "", text, flags=re.S)
    headings = re.findall(r"^#.*", prose, re.M)
    assert all(re.match("#+ ", heading) for heading in headings), headings
    assert sum(heading.startswith("# ") for heading in headings) == 1


def anchors(path):
    """The anchors of a page's headings, as GitHub and the site make them."""
    titles = re.findall(r"^#+ (.*)", path.read_text(encoding="utf-8"), re.M)
    plain = [re.sub(r"[^\w\s-]", "", title).strip() for title in titles]
    return {re.sub(r"\s+", "-", title).lower() for title in plain}


# `make docs` checks the links between the pages of docs/.
@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_a_link_leads_to_a_heading(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([\w./#-]+)\)", text):
        path, _, anchor = link.partition("#")
        path = ROOT / (path or page)
        assert path.exists(), link
        assert not anchor or anchor in anchors(path), link


# Results name recipes of their time.
TODAY = [page for page in PAGES if "docs/results" not in page]


@pytest.mark.parametrize("page", TODAY)
def test_every_recipe_and_config_that_is_named_exists(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    for path in re.findall(r"configs/[\w/*]+\.(?:json|flags)", text):
        assert list(ROOT.glob(path)), path


@pytest.mark.parametrize("page", PAGES)
def test_every_file_that_is_named_exists(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    pattern = r"\b(?:albert_tf|tests|examples|benchmarks)/[\w/]+\.(?:py|ipynb)"
    for path in re.findall(pattern, text):
        assert (ROOT / path).exists(), path


def test_programs_md_names_every_command():
    text = (ROOT / "docs/programs.md").read_text(encoding="utf-8")
    found = {path.stem for path in ROOT.glob("albert_tf/commands/*.py")}
    assert found - {"__init__", "groups"} == set(
        re.findall(r"^\| `(\w+)` \|", text, re.M)
    )
    for folder in ("benchmarks", "examples"):
        for path in (ROOT / folder).glob("*.py"):
            if "__main__" in path.read_text():
                assert (
                    f"{folder}.{path.stem}`" in text
                    or str(path.relative_to(ROOT)) in text
                )


def test_the_page_of_flags_has_what_help_has():
    path = ROOT / "docs/hooks.py"
    spec = importlib.util.spec_from_file_location("hooks", path)
    hooks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hooks)
    file = types.SimpleNamespace(src_uri="flags.md")
    page = types.SimpleNamespace(file=file)
    text = hooks.on_page_markdown("# Flags", page=page)
    for path in (ROOT / "albert_tf/commands").glob("[!_]*.py"):
        if path.stem != "groups":
            table = re.search(rf"## {path.stem}\n(.*?)(?=\n## |$)", text, re.S)
            names = re.findall(r"`--(\w+)` \|.*\| .*\.", table[1])
            wanted = {name.rstrip("_") for name in flags_of(path.stem)}
            assert {*names, "flagfile"} == wanted


@pytest.mark.parametrize(
    ("pattern", "program", "number"),
    [
        ("pretrain/*.flags", "run_pretraining", 6),
        ("glue/**/*.flags", "run_classifier", 12),
        ("squad/*.flags", "run_squad", 2),
        ("race.flags", "run_race", 1),
    ],
)
def test_the_flags_of_the_recipes_exist(pattern, program, number):
    known = flags_of(program)
    recipes = list((ROOT / "configs").glob(pattern))
    assert len(recipes) == number
    for recipe in recipes:
        found = re.findall(r"^--(\w+)", recipe.read_text(), re.M)
        assert set(found) <= known


@pytest.fixture
def archive(tmp_path):
    """A model with random weights, packed as the release's are."""
    return tiny.write_archive(tmp_path / "albert_base.tar.gz")


def check_vectors(values, archive, folder):
    """Checks that the vectors of the example are those of `albert embed`."""
    lines = folder / "lines.txt"
    lines.write_text("\n".join(values["texts"]) + "\n")
    embed.run(
        EmbedFlags(
            init_checkpoint=str(archive),
            input_file=str(lines),
            output_file=str(folder / "vectors.npz"),
        )
    )
    wanted = np.load(folder / "vectors.npz")["vectors"]
    np.testing.assert_allclose(values["vectors"], wanted, atol=1e-6)


def test_the_python_examples_give_what_they_say(
    shared, archive, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out").mkdir()
    for name, write in (
        ("reviews", tiny.write_classifier),
        ("squad", tiny.write_answering),
        ("pretraining", tiny.write_model),
    ):
        (tmp_path / name).mkdir()
        write(tmp_path / name).rename(tmp_path / "out" / name)
    text = (ROOT / "docs/library.md").read_text(encoding="utf-8")
    # What follows is in tests/tasks.
    text = text.partition("## Fine-tuning")[0]
    blocks = re.findall(r"```python\n(.*?)```", text, re.S)
    assert len(blocks) == 9
    places = {
        "30k-clean.model": tiny.RELEASED,
        '"vocab.txt"': f'"{shared / "data" / "zh" / "vocab.txt"}"',
        "configs/": f"{ROOT}/configs/",
        '"albert_base_v2"': f'"{archive}"',
    }
    values = {}
    for block in blocks:
        assert len([x for x in block.splitlines() if x]) <= 10
        for name, place in places.items():
            block = block.replace(name, str(place))
        exec(block, values)
        if "GlobalAverage" in block:
            check_vectors(values, archive, tmp_path)
        for line in block.splitlines():
            code, _, said = line.partition("  # ")
            if said.startswith("[") and "B" not in said:
                assert eval(code, values) == eval(said), line
    wanted = values["loaded"].predict(values["ids"])
    np.testing.assert_allclose(values["logits"], wanted, atol=1e-5)
    script = (
        "import sys, numpy as np, albert_tf, keras; "
        "model = keras.models.load_model('reviews.keras'); "
        "np.save('logits.npy', model.predict(np.array(eval(sys.argv[1]))))"
    )
    ids = str(values["ids"].tolist())
    subprocess.run([sys.executable, "-c", script, ids], check=True)
    np.testing.assert_allclose(np.load("logits.npy"), wanted, atol=1e-5)
    assert values["outputs"]["sequence_output"].shape == (1, 6, 768)
    assert values["outputs"]["pooled_output"].shape == (1, 768)


def test_the_page_on_vectors_can_be_typed(archive, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs/embeddings.md").read_text(encoding="utf-8")
    (tmp_path / "lines.txt").write_text("A wonderful film.\nBad.\n")
    monkeypatch.setenv(downloads.CACHE, str(tmp_path))
    shutil.copy(archive, "albert_base_v2.tar.gz")
    # Exports, below, are in tests/export.
    text = text.partition("## Choose")[0]
    blocks = re.findall(r"```(sh|python)\n(.*?)```", text, re.S)
    assert [kind for kind, _ in blocks] == ["sh", "python"]
    values = {}
    for kind, block in blocks:
        if kind == "python":
            exec(block, values)
            continue
        _, name, *words = shlex.split(block.replace("\\\n", ""))
        program, flags_class = albert_commands.find(name.removesuffix(".py"))
        assert not flags.run_command(program, flags_class, words)
    np.testing.assert_allclose(np.diag(values["cosines"]), 1, atol=1e-6)


@pytest.mark.nightly
def test_the_readme_can_be_typed_from_top_to_bottom(capsys):
    if not typed.is_installed():
        pytest.skip("needs the .venv of `make setup`, up to date")
    try:
        rows = typed.main(has_shared_venv=True)
    except RuntimeError:
        said = capsys.readouterr().out
        if "Is a package index reachable" in said:
            pytest.skip("needs a package index, for the texts it trains on")
        print(said)
        raise
    said = capsys.readouterr().out
    commands = [block.split()[:2] for _, block in rows]
    assert ["make", "quickstart"] in commands
    assert ["albert", "run_classifier"] in commands
    assert "Held-out text" in said
    assert "speech_eras: {'eval_loss'" in said
    # What the exported model answers: a line for each sentence.
    assert len(re.findall(r"^\d{4}-(?:\d{4})? \d+% \w", said, re.M)) == 3


def test_a_line_that_fails_is_named():
    blocks = typed.read_blocks("```sh\ntrue\nfalse \\\n  x\necho 1\n```\n")
    with pytest.raises(RuntimeError, match="This failed:\nfalse"):
        typed.type_all(ROOT, blocks)


def test_only_blocks_that_can_run_are_typed():
    text = "```sh download\na\n```\n```sh\nmake test\nb\n```\n```text\nc\n```\n"
    assert list(typed.read_blocks(text)) == ["b"]

"""What the README says can be typed."""

import pathlib
import re
import shlex
import shutil
import tarfile

import pytest

from albert_tf.model import heads, modeling
from albert_tf.model.config import CONFIG_FILE, AlbertConfig
from albert_tf.weights import checkpoints
from tests.bad_inputs.commands import find_program

ROOT = pathlib.Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def commands():
    """The indented `python ...` and `albert ...`, with their lines joined."""
    lines = re.findall(r"^    (.*)$", README, re.M)
    joined = "\n".join(lines).replace("\\\n", " ").splitlines()
    return [x for x in joined if re.match(r"python \w+\.py|albert \w+ -", x)]


def flags_of(program):
    """The names of a program's flags."""
    _, flags_class = find_program(program)
    return {*flags_class.__dataclass_fields__, "flagfile"}


@pytest.mark.parametrize("command", commands())
def test_every_flag_of_a_command_exists(command):
    program = shlex.split(command)[1].removesuffix(".py")
    found = re.findall(r" --(\w+)", command)
    assert found
    assert set(found) <= flags_of(program)


def test_every_recipe_and_config_that_is_named_exists():
    for path in re.findall(r"configs/[\w/*]+\.(?:json|flags)", README):
        assert list(ROOT.glob(path)), path


@pytest.mark.parametrize(
    ("pattern", "program", "number"),
    [
        ("pretrain/*.flags", "run_pretraining", 5),
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
def archive(shared, tmp_path):
    """A model with random weights, packed as the release's are."""
    config = {"vocab_size": 30000, "embedding_size": 4, "hidden_size": 8}
    config = AlbertConfig(**config, num_attention_heads=2, intermediate_size=8)
    model = heads.AlbertForPreTraining(config)
    folder = tmp_path / "albert_base"
    folder.mkdir()
    checkpoints.write_checkpoint(
        str(folder / "model.ckpt-best"),
        {n: w.value for n, w in modeling.named_weights(model).items()},
    )
    (folder / CONFIG_FILE).write_text(config.to_json_string())
    vocabulary = shared / "data" / "albert_en" / "30k-clean.model"
    shutil.copyfile(vocabulary, folder / vocabulary.name)
    path = tmp_path / "albert_base.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        tar.add(folder, folder.name)
    return path


def test_the_python_examples_give_what_they_say(shared, archive):
    # The last is a fine-tuning: tests/tasks/test_finetuning.py.
    *blocks, _ = re.findall(r"```python\n(.*?)```", README, re.S)
    assert len(blocks) == 3
    places = {
        "30k-clean.model": shared / "data" / "albert_en" / "30k-clean.model",
        '"vocab.txt"': f'"{shared / "data" / "zh" / "vocab.txt"}"',
        "configs/": f"{ROOT}/configs/",
        "albert_base_v2.tar.gz": archive,
    }
    values = {}
    for block in blocks:
        assert len([x for x in block.splitlines() if x]) <= 10
        for name, place in places.items():
            block = block.replace(name, str(place))
        exec(block, values)
        for line in block.splitlines():
            code, _, said = line.partition("  # ")
            if said.startswith("[") and "B" not in said:
                assert eval(code, values) == eval(said), line
    assert values["outputs"]["sequence_output"].shape == (1, 6, 768)
    assert values["outputs"]["pooled_output"].shape == (1, 768)

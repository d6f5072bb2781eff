"""The tutorial of TF Hub's forms, executed as it stands on plain reviews."""

import csv
import pathlib
import random
import re

import keras
import numpy as np
import pytest

from albert_tf.commands.export_to_tfhub import ExportFlags
from albert_tf.model import heads, modeling
from albert_tf.model.config import AlbertConfig
from albert_tf.programs import export_to_tfhub
from albert_tf.text import tokenization
from albert_tf.weights import pretrained

ROOT = pathlib.Path(__file__).parent.parent


VERDICTS = (
    "bad wrong dark poor lost dead cold".split(),
    "good great fine well love happy kind".split(),
)
OTHERS = "the and of to a in he was it that his her as had with for".split()


def write_reviews(path, num_rows, seed):
    """Writes reviews of words of which half tell the label."""
    rng = random.Random(seed)
    lines = ["label\ttext"]
    for _ in range(num_rows):
        label = rng.randrange(2)
        words = rng.choices(VERDICTS[label], k=6) + rng.choices(OTHERS, k=6)
        rng.shuffle(words)
        lines.append(f"{label}\t{' '.join(words)}")
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture
def place(tmp_path):
    """A folder with an encoder of random weights, and some reviews."""
    path = str(ROOT / "tests/golden/token/spm2k.model")
    config = AlbertConfig(
        vocab_size=tokenization.build_tokenizer(spm_model_file=path).vocab_size,
        embedding_size=32,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        hidden_dropout_prob=0,
        attention_probs_dropout_prob=0,
    )
    keras.utils.set_random_seed(1)
    model = heads.AlbertForPreTraining(config)
    found = pretrained.Pretrained(
        "random",
        {n: w.numpy() for n, w in modeling.named_weights(model).items()},
        config,
        tokenization.build_tokenizer(spm_model_file=path),
        pretrained.read_vocabulary_file(path),
    )
    (tmp_path / "albert_small").mkdir()
    pretrained.write_pretrained(tmp_path / "albert_small", found, "own")
    (tmp_path / "reviews").mkdir()
    for seed, (name, num_rows) in enumerate((("train", 256), ("test", 100))):
        write_reviews(tmp_path / f"reviews/{name}.tsv", num_rows, seed)
    return tmp_path


def test_the_tutorial_does_what_it_says(place, monkeypatch, capsys):
    text = (ROOT / "docs/tutorial_hub.md").read_text(encoding="utf-8")
    (flags,) = re.findall(r"export_to_tfhub\.py (.*?)\n\n", text, re.S)
    found = dict(re.findall(r"--(\w+)=(\S+)", flags))
    monkeypatch.chdir(place)
    export_to_tfhub.run(ExportFlags(**found))
    code = "\n".join(re.findall(r"```python\n(.*?)```", text, re.S))
    # Fewer tokens, and a rate for a model that knows nothing.
    code = code.replace("seq_length=256", "seq_length=32")
    code = code.replace(
        "learning_rate=1e-4, epochs=2", "learning_rate=2e-3, epochs=4"
    )
    values = {}
    exec(code, values)
    labels = values["test_labels"]
    with open("reviews/test.tsv", encoding="utf-8") as file:
        rows = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    assert len(labels) == len(rows) - 1 == 100
    majority = max(np.mean(labels), 1 - np.mean(labels))
    assert values["majority"] == majority
    assert 0.3 < values["frozen"] <= 1
    # What does not train stays near the majority.
    assert values["trained"] > majority + 0.2
    assert f"majority {majority:.3f}" in capsys.readouterr().out

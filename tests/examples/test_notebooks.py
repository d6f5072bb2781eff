"""The notebooks, executed from top to bottom on small data."""

import json
import pathlib
import random
import re

import keras
import pytest

from albert_tf.commands.export_to_tfhub import ExportFlags
from albert_tf.model import heads, modeling
from albert_tf.model.config import AlbertConfig
from albert_tf.programs import export_to_tfhub
from albert_tf.text import tokenization
from albert_tf.weights import pretrained

nbformat = pytest.importorskip("nbformat", reason="make docs installs it")
nbclient = pytest.importorskip("nbclient", reason="make docs installs it")

ROOT = pathlib.Path(__file__).parent.parent.parent
VOCABULARY = ROOT / "tests/golden/token/spm2k.model"
# Words that tell the label of a text, and words that do not.
TELLING = (
    "bad wrong dark poor lost dead cold".split(),
    "good great fine well love happy kind".split(),
    "man woman boy girl king people children".split(),
)
OTHERS = "the and of to a in he was it that his her as had with for".split()


def write_table(path, label_name, labels, num_rows, seed):
    """Writes texts half of whose words tell the label."""
    rng = random.Random(seed)
    lines = [f"{label_name}\ttext"]
    for _ in range(num_rows):
        label = rng.randrange(len(labels))
        words = rng.choices(TELLING[label], k=6) + rng.choices(OTHERS, k=6)
        rng.shuffle(words)
        lines.append(f"{labels[label]}\t{' '.join(words)}")
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


def write_text(path, num_documents=20):
    """Writes documents of eight sentences; returns them, each as a line."""
    rng = random.Random(1)
    words = OTHERS + sum(TELLING, [])
    documents = [
        [" ".join(rng.choices(words, k=9)) for _ in range(8)]
        for _ in range(num_documents)
    ]
    path.parent.mkdir()
    path.write_text("\n\n".join(map("\n".join, documents)) + "\n")
    return [" ".join(sentences) for sentences in documents]


@pytest.fixture
def model(tmp_path, request):
    """A folder with a model of random weights; the parameter is E."""
    tokenizer = tokenization.build_tokenizer(spm_model_file=str(VOCABULARY))
    config = AlbertConfig(
        vocab_size=tokenizer.vocab_size,
        embedding_size=getattr(request, "param", 32),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        hidden_dropout_prob=0,
        attention_probs_dropout_prob=0,
    )
    keras.utils.set_random_seed(1)
    weights = modeling.named_weights(heads.AlbertForPreTraining(config))
    found = pretrained.Pretrained(
        "random",
        {name: weight.numpy() for name, weight in weights.items()},
        config,
        tokenizer,
    )
    folder = tmp_path / "quickstart_output/model"
    folder.mkdir(parents=True)
    pretrained.write_pretrained(folder, found, "own")
    return folder


def execute(name, folder, replaced, wanted):
    """Returns the value of an expression at the end of a notebook.

    Args:
      name: file in `examples`.
      folder: where its data is; the notebook is opened in one below.
      replaced: dict of what is replaced in its code.
      wanted: an expression whose value can be JSON.
    """
    book = nbformat.read(ROOT / "examples" / name, 4)
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    for old, new in replaced.items():
        assert any(old in cell.source for cell in code), old
        for cell in code:
            cell.source = cell.source.replace(old, new)
    last = f"import json\nprint(json.dumps({wanted}))"
    book.cells.append(nbformat.v4.new_code_cell(last))
    (folder / "examples").mkdir()
    resources = {"metadata": {"path": str(folder / "examples")}}
    nbclient.NotebookClient(book, timeout=300, resources=resources).execute()
    plots = [
        output
        for cell in code
        for output in cell.outputs
        if "image/png" in output.get("data", {})
    ]
    return json.loads(book.cells[-1].outputs[-1].text), len(plots)


def test_the_fine_tuning_notebook_learns(model, tmp_path):
    eras = "1790-1860", "1861-1940", "1941-"
    folder = tmp_path / "quickstart_output/speeches"
    for seed, part in enumerate(("train", "dev", "test")):
        write_table(folder / f"{part}.tsv", "era", eras, 600 // 3**seed, seed)
    accuracy, num_plots = execute(
        "fine_tuning.ipynb",
        tmp_path,
        {"learning_rate=3e-4": "learning_rate=5e-3"},
        "matrix.trace() / matrix.sum()",
    )
    assert 0.8 < accuracy <= 1
    assert num_plots == 3
    assert list(tmp_path.glob("quickstart_output/notebook_serving/*/*.pb"))


@pytest.mark.nightly
def test_the_film_review_notebook_learns(model, tmp_path, monkeypatch):
    for seed, (part, num_rows) in enumerate((("train", 256), ("test", 100))):
        path = tmp_path / f"reviews/{part}.tsv"
        write_table(path, "label", (0, 1), num_rows, seed)
    monkeypatch.chdir(tmp_path)
    args = ExportFlags(albert_directory=str(model), export_path="hub/albert")
    export_to_tfhub.run(args)
    # Fewer tokens, and a rate for a model that was not pretrained.
    (frozen, trained, majority), num_plots = execute(
        "film_reviews.ipynb",
        tmp_path,
        {
            "SEQ_LENGTH = 192": "SEQ_LENGTH = 32",
            "learning_rate=1e-4, epochs=3": "learning_rate=2e-3, epochs=4",
        },
        "[frozen['val_accuracy'][-1], trained['val_accuracy'][-1], "
        "float(majority)]",
    )
    assert 0.3 < frozen <= 1
    assert trained > majority + 0.2
    assert num_plots == 1


@pytest.mark.parametrize("model", [24], indirect=True)
def test_the_notebook_that_explains_albert_draws_all(model, tmp_path):
    documents = write_text(tmp_path / "quickstart_output/text/heldout.txt")
    values, num_plots = execute(
        "albert_explained.ipynb",
        tmp_path,
        {},
        "{'word embeddings': summaries['BERT-base']['parameters']"
        "['word embeddings'], 'num_passes': len(measured.change), "
        "'pairs': [[read_pairs(r, label) for label in (0, 1)] "
        "for r in (nsp, sop)]}",
    )
    assert num_plots == 7
    assert values["word embeddings"] == 23_440_896
    assert values["num_passes"] == 8

    def find_orders(pairs):
        """Returns in which orders documents have A and B, of long pairs."""
        return {
            tuple(
                any(re.search(f"{x}.*{y}", text) for text in documents)
                for x, y in ((a, b), (b, a))
            )
            for a, b in pairs
            if min(len(a.split()), len(b.split())) > 4
        }

    (following, from_others), (ordered, swapped) = values["pairs"]
    assert find_orders(following) == find_orders(ordered) == {(True, False)}
    assert find_orders(swapped) == {(False, True)}
    assert find_orders(from_others) == {(False, False)}


@pytest.mark.parametrize(
    "name", sorted(p.name for p in (ROOT / "examples").glob("*.ipynb"))
)
def test_a_notebook_carries_the_output_of_a_whole_run(name):
    book = nbformat.read(ROOT / "examples" / name, 4)
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    counts = [cell.execution_count for cell in code]
    assert counts == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell.outputs]
    assert outputs
    assert not [o for o in outputs if o.output_type == "error"]
    assert "/tmp/" not in json.dumps(outputs)

"""A model of a few words with random weights, for tests of programs."""

import dataclasses
import pathlib
import shutil
import tarfile

import numpy as np

from albert_tf.model import heads, modeling, span_heads, tag_heads
from albert_tf.model.config import CONFIG_FILE, AlbertConfig
from albert_tf.text import tokenization
from albert_tf.weights import checkpoints, pretrained, task_heads

ROOT = pathlib.Path(__file__).parent.parent
# The vocabulary of the released English models.
RELEASED = ROOT / "tests/golden/data/albert_en/30k-clean.model"
WORDS = [f"w{i}" for i in range(20)]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
# All sizes differ, so that a transposed axis is detected.
SIZES = {
    "vocab_size": 31,
    "embedding_size": 5,
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 17,
    "max_position_embeddings": 11,
}
CONFIG = AlbertConfig(
    **{**SIZES, "vocab_size": 25, "max_position_embeddings": 32},
    hidden_dropout_prob=0.1,
    attention_probs_dropout_prob=0.0,
)
# Of the same weights, which layers share, in half the time.
ONE_LAYER = dataclasses.replace(CONFIG, num_hidden_layers=1)


def write_archive(path):
    """Writes a small model with the release's vocabulary, packed as its are.

    Args:
      path: a pathlib.Path that ends in .tar.gz; a folder beside it is written,
        too.
    """
    folder = path.with_name("unpacked")
    folder.mkdir()
    config = AlbertConfig(**{**SIZES, "vocab_size": 30_000})
    config = dataclasses.replace(config, max_position_embeddings=512)
    weights = modeling.named_weights(modeling.AlbertEncoder(config))
    checkpoints.write_checkpoint(
        str(folder / "model.ckpt-best"),
        {name: weight.value for name, weight in weights.items()},
    )
    (folder / CONFIG_FILE).write_text(config.to_json_string())
    shutil.copy(RELEASED, folder)
    with tarfile.open(path, "w:gz") as tar:
        tar.add(folder, "albert_base")
    return path


def write_model(folder, config=CONFIG):
    """Writes the model, its vocabulary and its config; returns the folder."""
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL, *WORDS]) + "\n")
    found = pretrained.Pretrained(
        "random",
        {
            name: weight.numpy()
            for name, weight in modeling.named_weights(
                heads.AlbertForPreTraining(config)
            ).items()
        },
        config,
        tokenization.build_tokenizer(vocab_file=str(folder / "vocab.txt")),
    )
    pretrained.write_pretrained(folder, found, "own")
    return folder


def write_classifier(
    folder, kind="classes", labels=("no", "yes"), *, config=CONFIG, seed=0
):
    """Writes a fine-tuned model with random weights; returns the folder."""
    model = heads.AlbertClassifier(
        config, num_labels=len(labels or [0]), objective=kind
    )
    head = task_heads.TaskHead(kind, labels)
    return _write_task(folder, model, head, config, seed)


def write_answering(folder, version="v1", threshold=None, seed=0):
    """Writes a model of SQuAD with random weights; returns the folder."""
    is_v1 = version == "v1"
    kind = "spans" if is_v1 else "conditional_spans"
    model_class = getattr(
        span_heads, "AlbertSpans" if is_v1 else "AlbertConditionalSpans"
    )
    head = task_heads.TaskHead(kind, threshold=threshold)
    return _write_task(folder, model_class(CONFIG), head, seed=seed)


def write_tagger(folder, labels=("O", "B-X", "I-X")):
    """Writes a tagger with random weights; returns the folder."""
    model = tag_heads.AlbertTagger(CONFIG, num_labels=len(labels))
    return _write_task(folder, model, task_heads.TaskHead("tags", labels))


def _write_task(folder, model, head, config=CONFIG, seed=0):
    """Writes a fine-tuned model with random weights to a folder inside."""
    start = pretrained.read_pretrained(write_model(folder, config))
    rng = np.random.default_rng(seed)
    values = {
        name: rng.normal(0, 0.5, weight.shape).astype(np.float32)
        for name, weight in modeling.named_weights(model).items()
    }
    whole = dataclasses.replace(start, values=values, head=head)
    pretrained.write_pretrained(folder / head.kind, whole, "own")
    return folder / head.kind

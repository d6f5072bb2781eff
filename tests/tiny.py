"""A model of a few words with random weights, for tests of programs."""

import dataclasses

from albert_tf.model import heads, modeling
from albert_tf.model.config import AlbertConfig
from albert_tf.text import tokenization
from albert_tf.weights import pretrained, vocabulary_files

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
        vocabulary_files.read_vocabulary_file(folder / "vocab.txt"),
    )
    pretrained.write_pretrained(folder, found, "own")
    return folder

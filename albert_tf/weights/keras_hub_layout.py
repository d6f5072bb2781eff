"""Layout of KerasHub presets: names and shapes of weights, and JSON files.

Shapes: V vocab_size, E embedding_size, H hidden_size, F intermediate_size,
P positions, S segments, N heads of size D.
"""

import dataclasses

import keras
import numpy as np

from albert_tf.model.config import AlbertConfig

BACKBONE = "AlbertBackbone"
MASKED_LM = "AlbertMaskedLM"
TOKENIZER = "AlbertTokenizer"
PREPROCESSOR = "AlbertMaskedLMPreprocessor"
CONFIG_FILE = "config.json"
TASK_FILE = "task.json"
TOKENIZER_FILE = "tokenizer.json"
PREPROCESSOR_FILE = "preprocessor.json"
METADATA_FILE = "metadata.json"
# The version of KerasHub that writes this layout.
VERSION = "0.32.0"
# Their names -> ours.
SIZES = {
    "vocabulary_size": "vocab_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "num_groups": "num_hidden_groups",
    "num_inner_repetitions": "inner_group_num",
    "embedding_dim": "embedding_size",
    "hidden_dim": "hidden_size",
    "intermediate_dim": "intermediate_size",
    "dropout": "hidden_dropout_prob",
    "max_sequence_length": "max_position_embeddings",
    "num_segments": "type_vocab_size",
}
# Entries of every layer's config.
LAYER_KEYS = {"name", "trainable", "dtype"}
# AlbertMaskedLM's optimizer; without it, Keras warns on loading.
OPTIMIZER = (
    ("optimizer/vars/0", np.int64(0)),  # Steps.
    ("optimizer/vars/1", np.float32(5e-5)),  # Learning rate.
)
# Our name, their name, and the shapes of their variables in order.
EMBEDDINGS = (
    ("embeddings/word_embeddings", "reversible_embedding", "VE"),
    ("embeddings/position_embeddings", "position_embedding", "PE"),
    ("embeddings/token_type_embeddings", "embedding", "SE"),
    ("embeddings/LayerNorm", "layer_normalization", "E E"),
    ("encoder/embedding_hidden_mapping_in", "dense", "EH H"),
    ("pooler/dense", "dense_1", "HH H"),
)
ATTENTION = "_self_attention_layer"
BLOCK = (
    ("attention_1/self/query", f"{ATTENTION}/query_dense", "HND ND"),
    ("attention_1/self/key", f"{ATTENTION}/key_dense", "HND ND"),
    ("attention_1/self/value", f"{ATTENTION}/value_dense", "HND ND"),
    ("attention_1/output/dense", f"{ATTENTION}/output_dense", "NDH H"),
    ("LayerNorm", f"{ATTENTION}_norm", "H H"),
    ("ffn_1/intermediate/dense", "_feedforward_intermediate_dense", "HF F"),
    ("ffn_1/intermediate/output/dense", "_feedforward_output_dense", "FH H"),
    ("LayerNorm_1", "_feedforward_layer_norm", "H H"),
)
HEAD = (
    ("transform/dense", "masked_lm_head/_intermediate_dense", "HE E"),
    ("transform/LayerNorm", "masked_lm_head/_intermediate_layer_norm", "E E"),
    ("output_bias", "masked_lm_head", "V"),
)


@dataclasses.dataclass(frozen=True)
class Place:
    """The place of a weight in a KerasHub file, its shape there, and ours."""

    key: str
    theirs: tuple[int, ...]
    ours: tuple[int, ...]


def encoder_places(config: AlbertConfig) -> dict[str, Place]:
    """Returns the encoder's places in WEIGHTS_FILE, by canonical name.

    The config's `parameter_sharing` is "all".
    """
    rows = [(f"bert/{ours}", *rest) for ours, *rest in EMBEDDINGS]
    for group in range(config.num_hidden_groups):
        for inner in range(config.inner_group_num):
            number = group * config.inner_group_num + inner
            layer = f"transformer_encoder_{number}".removesuffix("_0")
            prefix = (
                f"bert/encoder/transformer/group_{group}/inner_group_{inner}"
            )
            rows += [
                (f"{prefix}/{ours}", f"{layer}/{theirs}", shapes)
                for ours, theirs, shapes in BLOCK
            ]
    return _places(rows, config)


def head_places(config: AlbertConfig) -> dict[str, Place]:
    """Returns the masked-LM head's places in TASK_WEIGHTS_FILE, by name."""
    return _places(
        [(f"cls/predictions/{o}", *rest) for o, *rest in HEAD], config
    )


def _places(rows, config):
    sizes = {
        "V": config.vocab_size,
        "E": config.embedding_size,
        "H": config.hidden_size,
        "F": config.intermediate_size,
        "P": config.max_position_embeddings,
        "S": config.type_vocab_size,
        "N": config.num_attention_heads,
        "D": config.hidden_size // config.num_attention_heads,
    }
    places = {}
    for ours, theirs, shapes in rows:
        is_norm = ours.rsplit("/")[-1].startswith("LayerNorm")
        parts = ["gamma", "beta"] if is_norm else ["kernel", "bias"]
        if " " not in shapes:
            parts = [""]
        pairs = zip(parts, shapes.split(), strict=True)
        for i, (part, shape) in enumerate(pairs):
            places[f"{ours}/{part}".rstrip("/")] = Place(
                f"layers/{theirs}/vars/{i}",
                tuple(sizes[letter] for letter in shape),
                tuple(sizes[letter] for letter in shape.replace("ND", "H")),
            )
    return places


def describe_preset(
    sizes: dict, num_parameters: int, *, has_tokenizer: bool, has_head: bool
) -> dict[str, dict]:
    """Returns the JSON files of a preset: a dict from file name to content.

    `sizes` are arguments of the AlbertBackbone, by KerasHub's names. With
    `has_head` the preset is an AlbertMaskedLM.
    """
    layer = _describe_layer("float32")
    backbone = _describe(BACKBONE, "albert_backbone", {**layer, **sizes})
    metadata = {
        "keras_version": keras.__version__,
        "keras_hub_version": VERSION,
        "parameter_count": num_parameters,
        "tasks": ["MaskedLM", "TextClassifier"],
    }
    files = {CONFIG_FILE: backbone, METADATA_FILE: metadata}
    preprocessor = None
    if has_tokenizer:
        files[TOKENIZER_FILE] = _describe_tokenizer()
    if has_tokenizer and has_head:
        preprocessor = _describe_preprocessor(sizes["max_sequence_length"])
        files[PREPROCESSOR_FILE] = preprocessor
    if has_head:
        parts = {"backbone": backbone, "preprocessor": preprocessor}
        files[TASK_FILE] = _describe(MASKED_LM, "albert_masked_lm", parts)
    return files


def _describe_tokenizer():
    return _describe(
        TOKENIZER,
        "albert_tokenizer",
        {
            **_describe_layer("int32"),
            "config_file": TOKENIZER_FILE,
            "proto": None,
            "sequence_length": None,
            "add_bos": False,
            "add_eos": False,
        },
    )


def _describe_preprocessor(sequence_length):
    """Describes the preprocessor that masks text, with KerasHub's rates."""
    return _describe(
        PREPROCESSOR,
        "albert_masked_lm_preprocessor",
        {
            **_describe_layer("float32"),
            "tokenizer": _describe_tokenizer(),
            "config_file": PREPROCESSOR_FILE,
            "sequence_length": sequence_length,
            "truncate": "round_robin",
            "mask_selection_rate": 0.15,
            "mask_selection_length": 96,
            "mask_token_rate": 0.8,
            "random_token_rate": 0.1,
        },
    )


def _describe_layer(dtype):
    return {
        "trainable": True,
        "dtype": {
            "module": "keras",
            "class_name": "DTypePolicy",
            "config": {"name": dtype},
            "registered_name": None,
        },
    }


def _describe(kind, name, config):
    return {
        "module": f"keras_hub.src.models.albert.{name}",
        "class_name": kind,
        "config": {"name": name, **config},
        "registered_name": f"keras_hub>{kind}",
    }

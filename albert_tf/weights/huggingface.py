"""Reads and writes Hugging Face folders: `config.json` and safetensors files.

Both need the package safetensors, but neither PyTorch nor transformers. The
layers are the same under other names, with transposed kernels; comments
explain all other differences.
"""

import base64
import dataclasses
import os

import numpy as np

from albert_tf import filesystem
from albert_tf.model.config import AlbertConfig
from albert_tf.text import tokenization, tokenizer_json
from albert_tf.weights import (
    huggingface_heads,
    regrouping,
    safetensor_files,
    sentence_transformers,
    task_heads,
)

CONFIG_FILE = "config.json"
# Their activations -> ours. Their "gelu" is the exact one, which the release
# does not have: in folders converted from the release it means the tanh form.
ACTIVATIONS = {
    "gelu_new": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "gelu": "gelu",
    "relu": "relu",
    "tanh": "tanh",
    "linear": "linear",
}
# Pairs of our part and theirs; only kernels are transposed.
PARTS = {
    "dense": (("kernel", "weight"), ("bias", "bias")),
    "norm": (("gamma", "weight"), ("beta", "bias")),
    "weight": (("", "weight"),),
    "head": (("output_weights", "weight"), ("output_bias", "bias")),
}
# Embeddings with the same name in both formats.
EMBEDDINGS = {
    "word_embeddings": "weight",
    "position_embeddings": "weight",
    "token_type_embeddings": "weight",
    "LayerNorm": "norm",
}
BLOCK = (
    ("attention_1/self/query", "attention.query", "dense"),
    ("attention_1/self/key", "attention.key", "dense"),
    ("attention_1/self/value", "attention.value", "dense"),
    ("attention_1/output/dense", "attention.dense", "dense"),
    ("LayerNorm", "attention.LayerNorm", "norm"),
    ("ffn_1/intermediate/dense", "ffn", "dense"),
    ("ffn_1/intermediate/output/dense", "ffn_output", "dense"),
    ("LayerNorm_1", "full_layer_layer_norm", "norm"),
)
PROJECTION = "albert.encoder.embedding_hidden_mapping_in"
HEADS = (
    ("bert/pooler/dense", "albert.pooler", "dense"),
    ("cls/predictions/transform/dense", "predictions.dense", "dense"),
    ("cls/predictions/transform/LayerNorm", "predictions.LayerNorm", "norm"),
    ("cls/seq_relationship", "sop_classifier.classifier", "head"),
)
OUTPUT_BIAS = ("cls/predictions/output_bias", "predictions.bias")
# Copies of tied weights.
DECODER = {
    "predictions.decoder.weight": "albert.embeddings.word_embeddings.weight",
    "predictions.decoder.bias": "predictions.bias",
}
# Constants that some files contain.
CONSTANTS = {
    f"{prefix}embeddings.{name}"
    for prefix in ("", "albert.")
    for name in ("position_ids", "token_type_ids")
}


def weight_names(
    config: AlbertConfig, architecture: str = huggingface_heads.PRETRAINING
) -> dict[str, str]:
    """Returns a dict from canonical name to Hugging Face's name.

    The config's `parameter_sharing` is "all". `architecture` is the class of
    the model, for its head; see `huggingface_heads.LAYERS`.
    """
    rows = [
        (f"bert/embeddings/{name}", f"albert.embeddings.{name}", kind)
        for name, kind in EMBEDDINGS.items()
    ]
    rows.append((regrouping.PROJECTION, PROJECTION, "dense"))
    for group in range(config.num_hidden_groups):
        for inner in range(config.inner_group_num):
            ours = f"bert/encoder/transformer/group_{group}/inner_group_{inner}"
            theirs = (
                f"albert.encoder.albert_layer_groups.{group}"
                f".albert_layers.{inner}"
            )
            rows += [(f"{ours}/{a}", f"{theirs}.{b}", k) for a, b, k in BLOCK]
    rows += [*HEADS, *huggingface_heads.LAYERS.get(architecture, ())]
    names = {
        f"{ours}/{part}".strip("/"): f"{theirs}.{their_part}"
        for ours, theirs, kind in rows
        for part, their_part in PARTS[kind]
    }
    return {**names, OUTPUT_BIAS[0]: OUTPUT_BIAS[1]}


def layer_group(config: AlbertConfig, layer: int) -> int:
    """Returns transformers' group index of a layer, computed in floats."""
    return int(layer / (config.num_hidden_layers / config.num_hidden_groups))


def read_config(folder: filesystem.Path) -> AlbertConfig:
    """Reads the config of a folder.

    Raises:
      ValueError: if it is not JSON, describes another kind of model, or uses
        an option that the release does not have.
    """
    path = os.path.join(folder, CONFIG_FILE)
    values = filesystem.read_json(path)
    act = values.get("hidden_act", "gelu_new")
    _check_kind(path, values, act)
    known = {field.name for field in dataclasses.fields(AlbertConfig)}
    # transformers may omit its defaults, which differ from AlbertConfig's.
    values = {
        "vocab_size": 30000,
        "hidden_dropout_prob": 0,
        "attention_probs_dropout_prob": 0,
        **{k: v for k, v in values.items() if k in known},
        "hidden_act": ACTIVATIONS[act],
    }
    try:
        config = AlbertConfig.from_dict(values)
    except ValueError as error:
        raise ValueError(f"{path} is not a model config: {error}") from None
    for layer in range(config.num_hidden_layers):
        if layer_group(config, layer) != config.attention_group(layer):
            raise ValueError(
                f"{path}: layer {layer} of {config.num_hidden_layers} has group"
                f" {layer_group(config, layer)} of {config.num_hidden_groups} "
                "in transformers, due to a rounding error; wanted "
                f"{config.attention_group(layer)}."
            )
    return config


def _check_kind(path, values, act):
    """Raises ValueError if a config is not one of the release's models."""
    kind = values.get("model_type", "albert")
    if kind != "albert":
        raise ValueError(f"{path} has model_type {kind!r}; wanted 'albert'.")
    if act not in list(ACTIVATIONS):
        raise ValueError(
            f"{path} has hidden_act {act!r}; wanted one of "
            f"{sorted(ACTIVATIONS)}."
        )
    epsilon = values.get("layer_norm_eps", 1e-12)
    if not isinstance(epsilon, int | float) or not 0 <= epsilon <= 1e-10:
        raise ValueError(
            f"{path} has layer_norm_eps {epsilon!r}; wanted ALBERT's 1e-12."
        )
    positions = values.get("position_embedding_type", "absolute")
    if positions != "absolute":
        raise ValueError(
            f"{path} has position_embedding_type {positions!r}; wanted "
            "'absolute', the only type that this package computes."
        )


def read_weights(
    folder: filesystem.Path, config: AlbertConfig, file: str | None = None
) -> tuple[dict, list, task_heads.TaskHead | None]:
    """Reads the weights of a folder: of a file in it, or of the usual one.

    Returns:
      Dict from canonical name to float32 array; a list of remarks on converted
      or omitted weights; and the head of a fine-tuned model, or None.

    Raises:
      ValueError: if a file is damaged, lacks weights of the encoder or the
        head, or has untied weights that ALBERT ties.
    """
    described = filesystem.read_json(os.path.join(folder, CONFIG_FILE))
    architecture = huggingface_heads.find_architecture(described)
    path, theirs, remarks = safetensor_files.read_folder(
        folder, CONSTANTS, file
    )
    if "embeddings.word_embeddings.weight" in theirs:
        # An AlbertModel without a head.
        theirs = {f"albert.{name}": v for name, v in theirs.items()}
    names = weight_names(config, architecture)
    _join_biases(theirs)
    for copy, original in DECODER.items():
        if copy in theirs and not np.array_equal(
            theirs[copy], theirs.get(original, ())
        ):
            raise ValueError(
                f"{path}: {copy} differs from {original}; ALBERT ties the two. "
                "Was the model trained with tie_word_embeddings=False?"
            )
    values = {
        ours: theirs[name].T if ours.endswith("/kernel") else theirs[name]
        for ours, name in names.items()
        if name in theirs
    }
    _check_whole(path, values, names, sorted(theirs))
    rest = theirs.keys() - names.values() - DECODER.keys()
    if surplus := sorted(n for n in rest if n.startswith("albert.")):
        raise ValueError(
            f"{path} has {len(surplus)} weights of the encoder that "
            f"{CONFIG_FILE} does not describe, such as {surplus[:2]}. Does it "
            "belong to another model (groups, inner groups), or are they of "
            "an adapter?"
        )
    if rest:
        remarks.append(f"omitted {', '.join(sorted(rest))}")
    regrouping.drop_identity(values, config, path)
    head = sentence_transformers.read_head(
        folder, config.max_position_embeddings
    )
    head = head or huggingface_heads.read_head(folder, described, values)
    head = task_heads.find_head(values, head, folder)
    if head and head.kind in huggingface_heads.WITHOUT_POOLER:
        remarks += huggingface_heads.add_pooler(values, config, head)
    elif not any(name.startswith("bert/pooler") for name in values):
        remarks.append("the model has no pooler")
    return values, remarks, head


def _join_biases(theirs):
    """Makes the bias of masked words and its copy one.

    transformers 2, which wrote the released models, added two biases to the
    logits; that of the decoder was not trained, and is 0.
    """
    names = (OUTPUT_BIAS[1], "predictions.decoder.bias")
    known = [theirs[name] for name in names if name in theirs]
    trained = [bias for bias in known if bias.any()]
    if known and len(trained) < 2:
        theirs |= dict.fromkeys(names, [*trained, *known][0])


def _check_whole(path, values, names, theirs):
    """Raises ValueError if weights of the encoder or the head are missing."""
    pretraining = ("bert/pooler", "cls/predictions", "cls/seq_relationship")
    lost = [
        name
        for ours, name in names.items()
        if ours not in values and not ours.startswith(pretraining)
    ]
    if lost:
        raise ValueError(
            f"{path} lacks {len(lost)} weights of the encoder or head, such as "
            f"{lost[:2]}; it has {theirs[:2]}. Does {CONFIG_FILE} belong to "
            "another model?"
        )


def write_folder(
    folder: filesystem.Path,
    values: dict,
    config: AlbertConfig,
    tokenizer: tokenization.Tokenizer | None,
    head: task_heads.TaskHead | None = None,
    classifier_dropout_prob: float | None = None,
):
    """Writes config, weights and tokenizer.

    The folder exists. `values` are by canonical name, with or without heads;
    `head` is None for a pretrained model. A `classifier_dropout_prob` of None
    is transformers' default.

    Raises:
      ValueError: if transformers has no class for the head; nothing is written
        then.
    """
    import safetensors.numpy

    sentence_transformers.check_pooling(head)
    values, target = regrouping.regroup_for(
        values, config, layer_group, always_projects=True
    )
    names = weight_names(target, huggingface_heads.architecture_of(head))
    huggingface_heads.check_is_known(values, names, head)
    if head and head.kind in huggingface_heads.WITHOUT_POOLER:
        huggingface_heads.drop_empty_pooler(values)
    theirs = {
        name: np.ascontiguousarray(
            values[ours].T if ours.endswith("/kernel") else values[ours]
        )
        for ours, name in names.items()
        if ours in values
    }
    filesystem.write_file(
        os.path.join(folder, safetensor_files.WEIGHTS_FILE),
        # safetensors' save_file makes the file readable only by its owner.
        safetensors.numpy.save(theirs, {"format": "pt"}),
    )
    described = describe_config(target, tokenizer)
    if classifier_dropout_prob is not None:
        described["classifier_dropout_prob"] = classifier_dropout_prob
    described |= huggingface_heads.describe_head(head, values)
    filesystem.write_json(os.path.join(folder, CONFIG_FILE), described)
    max_length = config.max_position_embeddings
    if head:
        max_length = head.lengths.get("max_seq_length", max_length)
    if tokenizer:
        write_tokenizer(folder, tokenizer, max_length)
    if head and head.kind == task_heads.VECTORS:
        sentence_transformers.write_files(
            folder, head, config.hidden_size, max_length
        )


def describe_config(
    config: AlbertConfig, tokenizer: tokenization.Tokenizer | None = None
) -> dict:
    """Returns the content of config.json for a config that shares by groups."""
    # Those of the release's vocabularies, which are transformers' defaults.
    pad_id, cls_id, sep_id = 0, 2, 3
    if tokenizer:
        pad_id, _, cls_id, sep_id, _ = tokenizer.special_ids
    act = config.hidden_act
    described = {
        **config.to_dict(),
        "hidden_act": {"gelu": "gelu_new", None: "linear"}.get(act, act),
        "model_type": "albert",
        "layer_norm_eps": 1e-12,
        "classifier_dropout_prob": 0.1,
        "pad_token_id": pad_id,
        "bos_token_id": cls_id,
        "eos_token_id": sep_id,
        "dtype": "float32",
    }
    del described["parameter_sharing"]
    return described


def write_tokenizer(folder: filesystem.Path, tokenizer, max_length: int):
    """Writes the files from which transformers computes the same ids."""
    is_wordpiece = tokenizer.kind == "wordpiece"
    settings = {
        # AlbertTokenizer of transformers 5 normalizes texts by rules of its
        # own, with which it has no Hindi vowels, instead of those in the file.
        "tokenizer_class": "PreTrainedTokenizerFast",
        "do_lower_case": tokenizer.settings["do_lower_case"],
        "keep_accents": tokenizer.settings["keep_accents"],
        "model_max_length": max_length,
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
    }
    if is_wordpiece:
        settings["tokenizer_class"] = "BertTokenizer"
        settings["strip_accents"] = (
            settings["do_lower_case"] and not settings["keep_accents"]
        )
    else:
        names = (
            f"{name}_token" for name in ("pad", "unk", "cls", "sep", "mask")
        )
        settings |= zip(names, tokenizer.special_pieces, strict=True)
    path = os.path.join(folder, "tokenizer_config.json")
    filesystem.write_json(path, settings)
    if not is_wordpiece:
        path = os.path.join(folder, tokenizer_json.FILE)
        filesystem.write_json(path, describe_unigram(tokenizer))


def describe_unigram(tokenizer: tokenization.SentencePieceTokenizer) -> dict:
    """Returns a SentencePiece tokenizer as JSON of the package tokenizers.

    Given only the .model, transformers 5 splits at "-" and quotation marks as
    if they were spaces.

    Raises:
      ValueError: if it is not a unigram model.
    """
    tokenizer.check_unigram()
    model = tokenizer.read_model()
    special = zip(tokenizer.special_ids, tokenizer.special_pieces, strict=True)
    metaspace = {
        "type": "Metaspace",
        "replacement": tokenization.WORD_PREFIX,
        "prepend_scheme": "always",
        "split": True,
    }
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": i,
                "content": name,
                "single_word": False,
                "lstrip": i == tokenizer.mask_id,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for i, name in special
        ],
        "normalizer": _describe_normalizer(tokenizer, model.normalizer_spec),
        "pre_tokenizer": metaspace,
        "post_processor": _describe_template(tokenizer),
        "decoder": metaspace,
        "model": _describe_pieces(tokenizer, model.pieces),
    }


def _describe_normalizer(tokenizer, spec):
    charsmap = base64.b64encode(spec.precompiled_charsmap).decode()
    steps = [
        {"type": "NFKD"},
        not tokenizer.settings["keep_accents"]
        and tokenizer_json.without_accents(),
        tokenizer.settings["do_lower_case"] and {"type": "Lowercase"},
        # Precompiled does not compose what is longer than 5 bytes, as Korean.
        charsmap and {"type": "NFC"},
        charsmap and {"type": "Precompiled", "precompiled_charsmap": charsmap},
        {"type": "Strip", "strip_left": True, "strip_right": True},
        {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "},
    ]
    return {"type": "Sequence", "normalizers": [step for step in steps if step]}


def _describe_template(tokenizer):
    """Returns the positions of [CLS] and [SEP] for one text and for pairs."""
    ids = {tokenizer.pieces[i]: i for i in (tokenizer.cls_id, tokenizer.sep_id)}
    cls, sep = ids
    first = [_special(cls, 0), _sequence("A", 0), _special(sep, 0)]
    return {
        "type": "TemplateProcessing",
        "single": first,
        "pair": [*first, _sequence("B", 1), _special(sep, 1)],
        "special_tokens": {
            name: {"id": name, "ids": [i], "tokens": [name]}
            for name, i in ids.items()
        },
    }


def _describe_pieces(tokenizer, pieces):
    # `SentencePieceTokenizer` splits pieces such as "2013,".
    penalty = tokenizer_json.COMMA_PENALTY
    return {
        "type": "Unigram",
        "unk_id": tokenizer.unk_id,
        "vocab": [
            [name, piece.score - penalty * (i in tokenizer.expansions)]
            for i, (name, piece) in enumerate(
                zip(tokenizer.pieces, pieces, strict=True)
            )
        ],
        "byte_fallback": False,
    }


def _special(name, type_id):
    return {"SpecialToken": {"id": name, "type_id": type_id}}


def _sequence(name, type_id):
    return {"Sequence": {"id": name, "type_id": type_id}}

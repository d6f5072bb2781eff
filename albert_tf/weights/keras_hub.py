"""Reads and writes KerasHub presets: `config.json` and `model.weights.h5`.

A preset is a folder written by `AlbertBackbone.save_to_preset`, or by
`AlbertMaskedLM.save_to_preset`, which adds the masked-LM head in
`task.weights.h5`. Both directions need h5py, which comes with Keras, but not
KerasHub. Keras identifies weights by their position in the model, such as
"layers/dense_1". KerasHub has no sentence-order head.
"""

import contextlib
import dataclasses
import io
import os
import unicodedata

import h5py
import numpy as np

from albert_tf import filesystem
from albert_tf.model.config import AlbertConfig
from albert_tf.text import standalone, tokenization
from albert_tf.weights import keras_hub_layout, regrouping, safetensor_files

CONFIG_FILE = keras_hub_layout.CONFIG_FILE
WEIGHTS_FILE = "model.weights.h5"
SHARDS_FILE = "model.weights.json"
TASK_WEIGHTS_FILE = "task.weights.h5"
VOCABULARY_FILE = "assets/tokenizer/vocabulary.spm"
HEAD_EPSILON = 1e-5  # KerasHub's; the release's is 1e-12.


def is_preset(folder: filesystem.Path) -> bool:
    """Returns whether a folder's config.json is from Keras, not transformers.

    Both write a file of this name. Keras's has a `class_name`; transformers'
    has a `model_type` and sizes at the top level.
    """
    return "class_name" in filesystem.read_json(
        os.path.join(folder, CONFIG_FILE)
    )


def layer_group(config: AlbertConfig, layer: int) -> int:
    """Returns KerasHub's group index of a layer; its groups have equal size."""
    return layer // (config.num_hidden_layers // config.num_hidden_groups)


def read_config(folder: filesystem.Path) -> AlbertConfig:
    """Reads the config of a preset.

    Raises:
      ValueError: if it is not JSON, describes another kind of model, lacks a
        key or has an unknown one.
    """
    path = os.path.join(folder, CONFIG_FILE)
    described = filesystem.read_json(path)
    kind, values = described.get("class_name"), described.get("config")
    if kind != keras_hub_layout.BACKBONE:
        raise ValueError(
            f"{path} has class_name {kind!r}; wanted KerasHub's "
            f"{keras_hub_layout.BACKBONE!r}."
        )
    if not isinstance(values, dict):
        raise ValueError(f"{path} lacks the object 'config' with the sizes.")
    lost = keras_hub_layout.SIZES.keys() - values.keys()
    known = keras_hub_layout.SIZES.keys() | keras_hub_layout.LAYER_KEYS
    unknown = values.keys() - known
    if lost or unknown:
        raise ValueError(
            f"{path} lacks {sorted(lost)} and has the unknown keys "
            f"{sorted(unknown)}; wanted those of KerasHub "
            f"{keras_hub_layout.VERSION}. Was it written by another version? "
            "Load it with that one and save_to_preset again."
        )
    sizes = {
        ours: values[theirs] for theirs, ours in keras_hub_layout.SIZES.items()
    }
    sizes["attention_probs_dropout_prob"] = values["dropout"]
    try:
        config = AlbertConfig.from_dict(sizes)
    except ValueError as error:
        raise ValueError(f"{path} is not a model config: {error}") from None
    if config.num_hidden_layers % config.num_hidden_groups:
        raise ValueError(
            f"{path} has {config.num_hidden_groups} groups for "
            f"{config.num_hidden_layers} layers; KerasHub requires groups of "
            "equal size."
        )
    return config


def read_weights(
    folder: filesystem.Path, config: AlbertConfig, file: str | None = None
) -> tuple[dict, list]:
    """Reads the weights of a preset.

    `file` is one of the encoder to read instead of WEIGHTS_FILE, without a
    head; either of the usual names stands for the preset.

    Returns:
      Dict from canonical name to float32 array, and a list of remarks on
      converted or omitted weights.

    Raises:
      FileNotFoundError: if there are no weights.
      ValueError: if a file is damaged or contradicts the config.
    """
    is_usual = file in (None, WEIGHTS_FILE, TASK_WEIGHTS_FILE)
    path = os.path.join(folder, WEIGHTS_FILE if is_usual else str(file))
    if not filesystem.exists(path):
        names = filesystem.list_folder(folder)
        hint = "Was the preset copied completely?"
        if SHARDS_FILE in names:
            hint = "The weights are sharded: load the preset with KerasHub and "
            hint += "save_to_preset(folder, max_shard_size=None)."
        raise FileNotFoundError(
            f"{path} does not exist; the folder has {names}. {hint}"
        )
    values, remarks = _read_file(path, keras_hub_layout.encoder_places(config))
    regrouping.drop_identity(values, config, path)
    task_path = os.path.join(folder, keras_hub_layout.TASK_FILE)
    if not (is_usual and filesystem.exists(task_path)):
        return values, remarks
    task = filesystem.read_json(task_path).get("class_name")
    path = os.path.join(folder, TASK_WEIGHTS_FILE)
    if task != keras_hub_layout.MASKED_LM or not filesystem.exists(path):
        return values, [*remarks, f"omitted the head of {task}"]
    head, more = _read_file(path, keras_hub_layout.head_places(config))
    return {**values, **head}, list(dict.fromkeys([*remarks, *more]))


def _read_file(path, places):
    """Returns the arrays of a file as float32, by our names, and remarks."""
    with filesystem.local_copy(path) as local:
        with _opened(local, path) as file:
            datasets = _list_datasets(file)
        # Checked before reading: a small file may declare an array of any size.
        _check_datasets(datasets, places, path)
        with _opened(local, path) as file:
            arrays = {
                ours: _read_array(file[place.key], datasets[place.key][1])
                .astype(np.float32)
                .reshape(place.ours)
                for ours, place in places.items()
            }
    kinds = {datasets[place.key][1] for place in places.values()}
    return arrays, safetensor_files.describe_conversions(kinds)


def _read_array(dataset, kind):
    array = dataset[()]
    # HDF5 has no bfloat16; it is stored as two bytes.
    return array.view(kind) if kind == "bfloat16" else array


@contextlib.contextmanager
def _opened(local, path):
    """Opens an HDF5 file and converts HDF5's errors to ValueError."""
    try:
        with h5py.File(local, "r") as file:
            yield file
    except (OSError, RuntimeError, LookupError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path} cannot be read: {error}. Was the download cut off, or is "
            "it a Git LFS pointer?"
        ) from error


def _list_datasets(group, prefix=""):
    """Returns a dict from name to shape and type of the arrays in a group.

    HDF5's `visititems` may not terminate on a damaged file.
    """
    datasets = {}
    for name in group:
        if not isinstance(group.get(name, getlink=True), h5py.HardLink):
            continue
        item = group[name]
        if isinstance(item, h5py.Group):
            datasets.update(_list_datasets(item, f"{prefix}{name}/"))
        elif isinstance(item, h5py.Dataset):
            is_own = not (item.external or item.is_virtual)
            kind = item.attrs.get("dtype", item.dtype) if is_own else ""
            datasets[f"{prefix}{name}"] = item.shape, str(kind)
    return datasets


def _check_datasets(datasets, places, path):
    """Raises ValueError unless a file has exactly the config's weights."""
    wanted = {place.key: place.theirs for place in places.values()}
    # The others belong to an optimizer, or are random states of dropout.
    weights = {
        name
        for name in datasets
        if name.startswith("layers/") and "seed_generator" not in name
    }
    if lost := sorted(wanted.keys() - weights):
        raise ValueError(
            f"{path} lacks {len(lost)} of the {len(wanted)} weights that "
            f"{CONFIG_FILE} specifies, such as {lost[:2]}; it has "
            f"{sorted(datasets)[:2]}. Does {CONFIG_FILE} belong to another "
            "model, or was it written by another version of Keras? Then load "
            "it with KerasHub, and save it anew with save_to_preset."
        )
    if rest := sorted(weights - wanted.keys()):
        raise ValueError(
            f"{path} has {len(rest)} weights more than {CONFIG_FILE} "
            f"specifies, such as {rest[:2]}. Does {CONFIG_FILE} belong to "
            "another model, or was the model quantized?"
        )
    for name, shape in wanted.items():
        actual, kind = datasets[name]
        if actual != shape:
            raise ValueError(
                f"{path}: {name} is {actual}; {CONFIG_FILE} specifies {shape}. "
                "Does it belong to another model?"
            )
        if kind not in safetensor_files.FLOATS:
            raise ValueError(
                f"{path}: {name} is {kind or 'in another file'}; wanted "
                f"{', '.join(safetensor_files.FLOATS)}. Is the model "
                "quantized? Convert the original."
            )


def read_tokenizer(folder: filesystem.Path):
    """Reads the tokenizer of a preset; None without one.

    KerasHub never lowercases. Still, a vocabulary without capitals, such as the
    release's, belongs to a model of lowercased text, so text is lowercased, and
    loses accents if no piece has one; a vocabulary with capitals is used as in
    KerasHub.

    Raises:
      FileNotFoundError: if the vocabulary is missing.
      ValueError: if the tokenizer is of another kind.
    """
    path = os.path.join(folder, keras_hub_layout.TOKENIZER_FILE)
    if not filesystem.exists(path):
        return None
    kind = filesystem.read_json(path).get("class_name")
    if kind != keras_hub_layout.TOKENIZER:
        raise ValueError(
            f"{path} has class_name {kind!r}; wanted "
            f"{keras_hub_layout.TOKENIZER!r}."
        )
    path = os.path.join(folder, VOCABULARY_FILE)
    if not filesystem.exists(path):
        raise FileNotFoundError(
            f"{path} does not exist, but {keras_hub_layout.TOKENIZER_FILE} "
            "does. Was the preset copied completely?"
        )
    tokenizer = tokenization.SentencePieceTokenizer(path)
    special = set(tokenizer.special_pieces)
    pieces = [p for p in tokenizer.pieces if p not in special]
    is_cased = any(p != p.lower() and not p.startswith("<0x") for p in pieces)
    letters = unicodedata.normalize("NFKD", "".join(pieces))
    if is_cased or any(map(unicodedata.combining, letters)):
        tokenizer = tokenization.SentencePieceTokenizer(
            path, do_lower_case=not is_cased, keep_accents=True
        )
    return tokenizer


def select(
    values: dict, config: AlbertConfig, tokenizer: tokenization.Tokenizer | None
) -> tuple[dict, list]:
    """Selects the weights of a model that a preset can represent.

    Returns:
      Dict from canonical name to array, and a list of remarks on omissions and
      changes.

    Raises:
      ValueError: if KerasHub lacks the activation or the kind of vocabulary.
    """
    if config.hidden_act != "gelu":
        raise ValueError(
            f"hidden_act is {config.hidden_act!r}; KerasHub's ALBERT supports "
            "only gelu. Choose another format."
        )
    if tokenizer and tokenizer.kind != "sentencepiece":
        raise ValueError(
            f"The vocabulary {tokenizer.settings['vocabulary']} is WordPiece; "
            "KerasHub's ALBERT supports only SentencePiece. Choose another "
            "format."
        )
    head = keras_hub_layout.head_places(config).keys()
    names = head if head <= values.keys() else set()
    kept = {
        n: v for n, v in values.items() if n.startswith("bert/") or n in names
    }
    remarks = []
    if rest := sorted(values.keys() - kept.keys()):
        remarks.append(
            f"omitted, because KerasHub lacks them: {', '.join(rest)}"
        )
    if names:
        remarks.append(
            f"the masked-LM head's LayerNorm has epsilon {HEAD_EPSILON} in "
            "KerasHub, so logits differ slightly"
        )
    theirs = dataclasses.replace(
        config,
        # KerasHub has a single dropout rate and a fixed initializer range.
        attention_probs_dropout_prob=config.hidden_dropout_prob,
        initializer_range=AlbertConfig.initializer_range,
    )
    for name, value in theirs.to_dict().items():
        if (old := getattr(config, name)) != value:
            remarks.append(f"{name} was changed from {old} to {value}")
    return kept, remarks


def write_folder(
    folder: filesystem.Path,
    values: dict,
    config: AlbertConfig,
    tokenizer: tokenization.Tokenizer | None,
):
    """Writes a preset of AlbertMaskedLM, or of AlbertBackbone without a head.

    The folder exists. What `select` omits is not written.

    Raises:
      ValueError: as for `select`.
    """
    values, _ = select(values, config, tokenizer)
    values, target = regrouping.regroup_for(
        values, config, layer_group, always_projects=True
    )
    places = keras_hub_layout.encoder_places(target)
    _write_file(os.path.join(folder, WEIGHTS_FILE), values, places)
    head = keras_hub_layout.head_places(target)
    has_head = head.keys() <= values.keys()
    if has_head:
        path = os.path.join(folder, TASK_WEIGHTS_FILE)
        _write_file(path, values, head, keras_hub_layout.OPTIMIZER)
    if isinstance(tokenizer, tokenization.SentencePieceTokenizer):
        path = os.path.join(folder, VOCABULARY_FILE)
        filesystem.write_file(path, standalone.serialize(tokenizer))
    described = keras_hub_layout.describe_preset(
        {
            theirs: getattr(target, ours)
            for theirs, ours in keras_hub_layout.SIZES.items()
        },
        sum(values[name].size for name in places),
        has_tokenizer=tokenizer is not None,
        has_head=has_head,
    )
    for name, value in described.items():
        filesystem.write_json(os.path.join(folder, name), value)


def _write_file(path, values, places, others=()):
    content = io.BytesIO()
    with h5py.File(content, "w") as file:
        for ours, place in places.items():
            file[place.key] = values[ours].reshape(place.theirs)
        for key, value in others:
            file[key] = value
    filesystem.write_file(path, content.getvalue())

"""Reads and writes pretrained models in all supported formats.

`read_pretrained` reads checkpoints of the release and of this package (TF1
prefix, .index file, folder or tar archive), TF Hub modules (the release's, `/3`
and those of export_to_tfhub.py; folder or tar), Hugging Face folders and
KerasHub presets. The result has the weights by canonical name, the config and
the vocabulary.
"""

import dataclasses
import os
from collections.abc import Callable, Sequence

import numpy as np

from albert_tf import filesystem
from albert_tf.model import heads, modeling
from albert_tf.model.config import CONFIG_FILE, AlbertConfig
from albert_tf.text import tokenization
from albert_tf.weights import (
    archives,
    checkpoints,
    huggingface,
    keras_hub,
    locations,
    positions,
    regrouping,
    saved_weights,
    task_heads,
    vocabulary_files,
)

# Prefix of the encoder's names.
BODY = "bert/"
POOLER = "bert/pooler/"
# Key of a config.
CLASSIFIER_DROPOUT = "classifier_dropout_prob"
FORMS = ("tf1", "own", "hf", "keras_hub")
# Settings of a config that change the outputs, but no weight's shape.
FUNCTION = ("num_attention_heads", "hidden_act", "inner_group_num")


@dataclasses.dataclass(frozen=True)
class Pretrained:
    """A pretrained or fine-tuned model.

    Attributes:
      source: the checkpoint's prefix, or a folder.
      values: dict from canonical name to array.
      config: the AlbertConfig next to the weights, or None.
      tokenizer: tokenizer of the vocabulary next to the weights, or None. It
        has the content of the vocabulary's file, too.
      remarks: notes on converted or omitted weights.
      head: head of a fine-tuned model; None if there is none or its kind is
        ambiguous.
      tokenizer_settings: settings of the tokenizer in pretraining, as recorded
        next to the weights, or None.
      classifier_dropout_prob: dropout rate of a classifier's head in a config
        of transformers, which this package only passes on; None if unknown.

    Example:
      >>> import tempfile, albert_tf
      >>> config = AlbertConfig(
      ...     vocab_size=6, embedding_size=4, hidden_size=8,
      ...     num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
      >>> weights = modeling.named_weights(albert_tf.AlbertEncoder(config))
      >>> values = {name: weight.numpy() for name, weight in weights.items()}
      >>> folder = tempfile.mkdtemp()
      >>> model = Pretrained("random weights", values, config)
      >>> write_pretrained(folder, model, "own")
      >>> read_pretrained(folder).config == config
      True
    """

    source: str
    values: dict[str, np.ndarray]
    config: AlbertConfig | None = None
    tokenizer: tokenization.Tokenizer | None = None
    _: dataclasses.KW_ONLY
    remarks: Sequence[str] = ()
    head: task_heads.TaskHead | None = None
    tokenizer_settings: dict | None = None
    classifier_dropout_prob: float | None = None

    @property
    def has_pooler(self) -> bool:
        """Whether there is a pooler; zeros stand for none."""
        kernel = self.values.get(f"{POOLER}dense/kernel")
        return kernel is not None and bool(kernel.any())

    @property
    def num_pieces(self) -> int | None:
        """Size of the vocabulary, which the model may exceed, or None."""
        if self.tokenizer:
            return self.tokenizer.vocab_size
        return (self.tokenizer_settings or {}).get("vocab_size")


@dataclasses.dataclass(frozen=True)
class Complete(Pretrained):
    """A Pretrained with config and vocabulary."""

    config: AlbertConfig
    tokenizer: tokenization.Tokenizer


def complete(pretrained: Pretrained | filesystem.Path) -> Complete:
    """Returns a model, or what `read_pretrained` takes, as a Complete.

    Raises:
      ValueError: if the config or the vocabulary is missing, or they differ
        in the number of pieces.
    """
    if not isinstance(pretrained, Pretrained):
        pretrained = read_pretrained(pretrained)
    missing = {}
    if pretrained.config is None:
        missing["config"] = "albert_config_file"
    if pretrained.tokenizer is None:
        missing["vocabulary"] = "spm_model_file or vocab_file"
    if missing:
        raise ValueError(
            f"{pretrained.source} has no {' and no '.join(missing)}, or "
            f"several, next to it. Give {' and '.join(missing.values())} to "
            "the command, or copy the file there."
        )
    found = Complete(**vars(pretrained))
    check_vocabulary(found.tokenizer, found.config)
    return found


def read_start(path: filesystem.Path, is_resumed: object) -> Pretrained | None:
    """Returns the model that a run starts from; None if a resumed one lacks it.

    Raises:
      ValueError, OSError, ImportError: as `read_pretrained`; the last two only
        if the run is not resumed.
    """
    try:
        return read_pretrained(path)
    except (OSError, ImportError):
        if not is_resumed:
            raise
        return None


def read_pretrained(
    path: filesystem.Path, *, keep_slots: bool = False
) -> Pretrained:
    """Reads a model.

    Args:
      path: a TF1 prefix, .index file, folder or tar archive; a TF Hub module
        as a folder or tar archive; a Hugging Face folder or KerasHub preset,
        or its weights file; a folder of versions or of training checkpoints
        of these, whose newest is read. Of a folder of fine-tuning, the best
        checkpoint is read, of one of pretraining the newest. Positions that
        its pretraining did not reach continue those before, see `positions`.
      keep_slots: whether to read the optimizer's slots and the step.

    Raises:
      FileNotFoundError: if there is no model.
      ValueError: if the model is damaged or of another kind.
    """
    kind, folder, file, prefixes = locations.locate(path)
    if kind == "archive":
        with archives.unpacked(folder) as unpacked:
            found = read_pretrained(unpacked, keep_slots=keep_slots)
            # The unpacked files will be gone, and none is beside the archive.
            name = os.path.relpath(found.source, unpacked)
        source = folder if name == "." else os.path.join(folder, name)
        return dataclasses.replace(found, source=str(source))
    if kind == "described":
        return _read_described(folder, file)
    prefix, values = checkpoints.read_newest(prefixes)
    if kind == "module":
        # TF Hub's modules of TensorFlow 1 have canonical names instead.
        if saved_weights.OBJECT_GRAPH in values:
            values = saved_weights.read_weights(values, folder)
        folder = os.path.join(folder, "assets")
    if not keep_slots:
        slots = checkpoints.find_slots(values)
        values = {n: v for n, v in values.items() if n not in slots}
    head = task_heads.find_head(values, task_heads.read_head(folder), prefix)
    # A SavedModel has its own threshold, which may have been given to export.
    if head and head.kind in task_heads.THRESHOLDS and kind != "module":
        threshold = task_heads.find_threshold(folder, prefix)
        head = dataclasses.replace(head, threshold=threshold)
    values, remarks = positions.continue_positions(
        values, num_trained=positions.read_trained(folder)
    )
    return dataclasses.replace(
        read_description(folder),
        source=prefix,
        values=values,
        remarks=remarks,
        head=head,
    )


def _read_described(path, weights_file):
    """Reads a folder with a config.json of transformers or KerasHub."""
    tokenizer = vocabulary_files.find_vocabulary(path)
    head = None
    if keras_hub.is_preset(path):
        config = keras_hub.read_config(path)
        values, remarks = keras_hub.read_weights(path, config, weights_file)
        tokenizer = tokenizer or keras_hub.read_tokenizer(path)
    else:
        config = huggingface.read_config(path)
        values, remarks, head = huggingface.read_weights(
            path, config, weights_file
        )
    settings = _recorded_settings(path, tokenizer)
    described = filesystem.read_json(
        os.path.join(path, huggingface.CONFIG_FILE)
    )
    return Pretrained(
        os.path.join(path, weights_file) if weights_file else path,
        values,
        config,
        tokenizer,
        remarks=remarks,
        head=head,
        tokenizer_settings=settings,
        classifier_dropout_prob=described.get(CLASSIFIER_DROPOUT),
    )


def _recorded_settings(folder, tokenizer):
    """Returns the settings of a tokenizer that are recorded, or None."""
    settings = tokenization.read_settings(folder)
    if settings is not None:
        return settings
    if tokenizer is None:  # It cannot be used, but its casing is known.
        recorded = vocabulary_files.read_hf_settings(folder, "wordpiece")
        return tokenization.take_casing(recorded) or None
    recorded = (
        tokenization.read_settings(folder, vocabulary_files.HF_SETTINGS) or {}
    )
    names = set(tokenization.CASING)
    config = os.path.join(folder, huggingface.CONFIG_FILE)
    if not (filesystem.exists(config) and keras_hub.is_preset(folder)):
        names &= recorded.keys()
        if "strip_accents" in recorded:
            names |= {"keep_accents"}
    return {name: tokenizer.settings[name] for name in names} or None


def read_description(folder: filesystem.Path) -> Pretrained:
    """Reads the config and vocabulary of a folder, without weights."""
    path = os.path.join(folder, CONFIG_FILE)
    config, described = None, {}
    if filesystem.exists(path):
        config = AlbertConfig.from_json_file(path)
        described = filesystem.read_json(path)
    tokenizer = vocabulary_files.find_vocabulary(folder)
    return Pretrained(
        str(folder),
        {},
        config,
        tokenizer,
        tokenizer_settings=_recorded_settings(folder, tokenizer),
        classifier_dropout_prob=described.get(CLASSIFIER_DROPOUT),
    )


def check_vocabulary(tokenizer: tokenization.Tokenizer, config: AlbertConfig):
    """Raises ValueError if vocabulary and model differ in size."""
    if not tokenization.fits(tokenizer.vocab_size, config.vocab_size):
        raise ValueError(
            f"The vocabulary {tokenizer.settings['vocabulary']} has "
            f"{tokenizer.vocab_size} pieces, the model {config.vocab_size}. "
            "Was the model trained with another vocabulary?"
        )


def check_same_vocabulary(
    pretrained: Pretrained,
    settings: dict | None,
    keys: Sequence[str] = ("sha256", *tokenization.CASING),
):
    """Checks that data or a vocabulary belong to a model.

    The `keys` of its tokenizer's settings are compared to `settings`, those of
    the data's tokenizer or of the vocabulary. What is unknown is not checked.

    Raises:
      ValueError: if it was trained with another vocabulary or casing.
    """
    settings = settings or {}
    recorded = pretrained.tokenizer_settings or {}
    if pretrained.tokenizer:
        known = pretrained.tokenizer.settings
        names = ("sha256", "vocabulary", "vocab_size", "is_rebuilt")
        recorded = recorded | {n: known.get(n) for n in names}
    for key in keys:
        rebuilt = {bool(x.get("is_rebuilt")) for x in (recorded, settings)}
        if key == "sha256" and len(rebuilt) > 1:
            key = "vocab_size"  # The hash of one original file is unknown.
        values = [x.get(key) for x in (recorded, settings)]
        if None not in values and values[0] != values[1]:
            what = f"{key} {values[0]}, not {values[1]}"
            if key == "sha256":
                what = (
                    f"the vocabulary {recorded.get('vocabulary')}, which "
                    f"differs from {settings.get('vocabulary')}"
                )
            raise ValueError(
                f"{pretrained.source} was trained with {what}. Use the model's "
                "vocabulary and casing, also for its data. (If what is "
                f"recorded next to the model in {tokenization.SETTINGS_FILE} "
                "is wrong, remove it.)"
            )


def build_model(
    model_class: Callable,
    pretrained: Pretrained | filesystem.Path,
    unused: Sequence[str] = (),
):
    """Builds a model with pretrained weights.

    `model_class` makes a model of an AlbertConfig; ours compute in the dtype of
    Keras's policy unless they are given another. `pretrained` may also be what
    `read_pretrained` takes. Weights whose names begin with `unused` may be
    missing, as the caller does not use them; they are then random.

    Raises:
      ValueError: if there is no config, a weight is missing, its shape
        differs, or the config lacks a layer.
    """
    if not isinstance(pretrained, Pretrained):
        pretrained = read_pretrained(pretrained)
    if pretrained.config is None:
        raise ValueError(
            f"There is no {CONFIG_FILE} next to {pretrained.source}. Put the "
            "model's config there."
        )
    model = model_class(pretrained.config)
    if isinstance(model, heads.AlbertForPreTraining):
        model.masked_lm.num_pieces = pretrained.num_pieces
    weights = modeling.named_weights(model)
    check_all_layers(pretrained.values, weights, pretrained.source)
    if not getattr(model, "uses_pooler", True):
        unused = [*unused, POOLER]
    is_lost = not (pretrained.has_pooler or POOLER.startswith(tuple(unused)))
    others = [n for n in weights if not n.startswith((*unused, POOLER))]
    if is_lost and all(name in pretrained.values for name in others):
        raise ValueError(
            f"{pretrained.source} has no pooler, as models that only predict "
            "words, spans or labels of tokens, so pooled_output would be "
            "noise. Use the vectors of tokens, or fine-tune the model first, "
            "which trains a pooler."
        )
    checkpoints.restore(weights, pretrained.values, pretrained.source, unused)
    return model


def check_all_layers(values: dict, weights: dict, source) -> None:
    """Raises ValueError if the model has no place for some layers' weights."""
    names = regrouping.names_of_groups(values) - weights.keys()
    if surplus := sorted(names - checkpoints.find_slots(values)):
        raise ValueError(
            f"{source} has weights of layers that the config has not, such as "
            f"{surplus[0]}. Is it a checkpoint of another architecture (groups,"
            " inner groups, parameter_sharing)?"
        )


def adapt(
    pretrained: Pretrained, config: AlbertConfig, *, regroups: bool = True
) -> Pretrained:
    """Returns a model with another config, and the weights that it needs.

    Positions that the model lacks continue those that it has, see `positions`.
    If it `regroups`, weights are copied where the config shares fewer of them,
    and a deeper model takes smaller steps, see `regrouping.regroup`. Remarks
    say what changed.

    Raises:
      ValueError: if the weights would compute something else, or layers with
        different weights would have to share them.
    """
    check_same_function(pretrained, config)
    values, remarks = positions.continue_positions(
        pretrained.values, config.max_position_embeddings
    )
    source, head = pretrained.config, pretrained.head
    if regroups and values and source and source != config:
        groups = regrouping.names_of_groups(values)
        values = regrouping.regroup(values, source, config)
        num_layers = source.num_hidden_layers
        if num_layers != config.num_hidden_layers:
            is_deeper = num_layers < config.num_hidden_layers
            remarks.append(
                f"the weights of its {num_layers} layers are used in "
                f"{config.num_hidden_layers}" + ", in smaller steps" * is_deeper
            )
            remark = "its {} is left out: it was chosen for other layers"
            head = _forget_exits(head, remarks, remark)
        elif regrouping.names_of_groups(values) != groups:
            remarks.append("shared weights were copied to each layer")
    return dataclasses.replace(
        pretrained,
        values=values,
        config=config,
        remarks=[*pretrained.remarks, *remarks],
        head=head,
    )


def _forget_exits(head, remarks, remark):
    """Returns a head that answers after all layers, with a remark if new."""
    if not head or head.kind != "classes" or head.threshold is None:
        return head
    known = f"{task_heads.EXIT_THRESHOLD}={head.threshold:g}"
    remarks.append(remark.format(known))
    return dataclasses.replace(head, threshold=None)


def check_same_function(pretrained: Pretrained, config: AlbertConfig) -> None:
    """Raises ValueError if the same weights would compute something else."""
    if pretrained.config is None:
        return
    for name in FUNCTION:
        theirs, ours = (getattr(c, name) for c in (pretrained.config, config))
        if theirs != ours:
            raise ValueError(
                f"{pretrained.source} was trained with {name} {theirs!r}, the "
                f"config has {ours!r}: with it, the weights compute "
                "something else. Use the model's own config."
            )


def replace_files(
    pretrained: Pretrained,
    *,
    albert_config_file: filesystem.Path | None = None,
    spm_model_file: filesystem.Path | None = None,
    vocab_file: filesystem.Path | None = None,
    do_lower_case: bool | None = None,
    keep_accents: bool | None = None,
) -> Pretrained:
    """Replaces the config, as `adapt` does, or the vocabulary of a model.

    `do_lower_case` is whether the vocabulary is for lowercased text, and
    `keep_accents` whether for text with accents; None for what is recorded next
    to the model or the vocabulary, or else True and False.

    Raises:
      ValueError: if the vocabulary is not the recorded one, or contradicts the
        config.
    """
    if albert_config_file:
        config = AlbertConfig.from_json_file(albert_config_file)
        pretrained = adapt(pretrained, config)
    casing = tokenization.take_casing(
        {"do_lower_case": do_lower_case, "keep_accents": keep_accents}
    )
    tokenizer = pretrained.tokenizer
    if path := spm_model_file or vocab_file:
        known = pretrained.tokenizer_settings
        if known is None and tokenizer:
            # Made in Python, or of a tokenizer.json, which says the casing.
            known = tokenizer.settings | dict.fromkeys(tokenization.CASING)
            known |= tokenizer.casing
        casing = vocabulary_files.read_casing(path, known) | casing
        tokenizer = tokenization.build_tokenizer(
            spm_model_file=spm_model_file, vocab_file=vocab_file, **casing
        )
    elif tokenizer:
        tokenizer = tokenizer.change_casing(**casing)
    if tokenizer:
        tokenizer.warn_of_casing(
            pretrained.source, pretrained.tokenizer_settings or {}
        )
    pretrained = dataclasses.replace(pretrained, tokenizer=tokenizer)
    if pretrained.config and tokenizer:
        check_vocabulary(tokenizer, pretrained.config)
    if path and tokenizer:
        recorded = dataclasses.replace(pretrained, tokenizer=None)
        check_same_vocabulary(recorded, tokenizer.settings, keys=["sha256"])
    return pretrained


def select(pretrained: Pretrained, form: str) -> Pretrained:
    """Returns the part of a model that a format can represent.

    The omitted part is described in `remarks`.

    Raises:
      ValueError: if the format cannot represent the encoder or vocabulary.
    """
    head = pretrained.head
    if form == "hf":
        remarks = [*pretrained.remarks]
        remark = "{} is left out: transformers computes all layers"
        head = _forget_exits(head, remarks, remark)
        return dataclasses.replace(pretrained, head=head, remarks=remarks)
    if form != "keras_hub" or pretrained.config is None:
        return pretrained
    if not pretrained.has_pooler:
        raise ValueError(
            f"{pretrained.source} has no pooler, or one of zeros; KerasHub's "
            "AlbertBackbone requires one. Choose another format."
        )
    values, remarks = keras_hub.select(
        pretrained.values, pretrained.config, pretrained.tokenizer
    )
    remarks = [*pretrained.remarks, *remarks]
    if head and head.kind == task_heads.VECTORS:
        remarks.append(
            f"the pooling {head.pooling!r} is left out: KerasHub has none"
        )
    return dataclasses.replace(
        pretrained, values=values, remarks=remarks, head=None
    )


def write_pretrained(folder: filesystem.Path, pretrained, form: str):
    """Writes a model.

    The model has a config. A `form` is "tf1": the release's, called
    model.ckpt-best, which shares weights only by groups; "own": the same with
    `parameter_sharing`; "hf": Hugging Face; "keras_hub": a preset of what
    `select` returns.

    Raises:
      ValueError: if there is no such format, or it cannot hold the model.
    """
    if form not in FORMS:
        raise ValueError(f"The format is {form!r}; wanted one of {FORMS}.")
    filesystem.make_folder(folder)
    config, values = pretrained.config, pretrained.values
    tokenizer = pretrained.tokenizer
    head = task_heads.find_head(values, pretrained.head, pretrained.source)
    if form == "hf":
        huggingface.write_folder(
            folder,
            values,
            config,
            tokenizer,
            head,
            pretrained.classifier_dropout_prob,
        )
    elif form == "keras_hub":
        keras_hub.write_folder(folder, values, config, tokenizer)
    else:
        described = config.to_dict()
        if form == "tf1":
            values, target = regrouping.regroup_for(
                values, config, regrouping.release_group
            )
            described = target.to_dict()
            del described["parameter_sharing"]
        if pretrained.classifier_dropout_prob is not None:
            described[CLASSIFIER_DROPOUT] = pretrained.classifier_dropout_prob
        checkpoints.write_checkpoint(
            os.path.join(folder, f"{checkpoints.PREFIX}-best"), values
        )
        filesystem.write_json(os.path.join(folder, CONFIG_FILE), described)
        if head:
            path = os.path.join(folder, task_heads.HEAD_FILE)
            filesystem.write_json(path, task_heads.describe_head(head))
    if tokenizer:
        name = vocabulary_files.choose_name(tokenizer.settings)
        if form in ("hf", "keras_hub"):
            name = vocabulary_files.USUAL_NAMES[tokenizer.kind]
        filesystem.write_file(os.path.join(folder, name), tokenizer.content)
        tokenizer.write_settings(folder)

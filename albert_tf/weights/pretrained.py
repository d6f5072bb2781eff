"""Reads and writes pretrained models in all supported formats.

`read_pretrained` reads checkpoints of the release and of this package (TF1
prefix, .index file, folder or tar archive), TF Hub modules (the release's, `/3`
and those of export_to_tfhub.py; folder or tar), Hugging Face folders and
KerasHub presets. The result has the weights by canonical name, the config and
the vocabulary.
"""

import contextlib
import dataclasses
import fnmatch
import hashlib
import io
import lzma
import os
import pathlib
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from albert_tf import filesystem
from albert_tf.model import modeling
from albert_tf.model.config import CONFIG_FILE, AlbertConfig
from albert_tf.text import tokenization
from albert_tf.weights import (
    checkpoints,
    huggingface,
    keras_hub,
    regrouping,
    safetensor_files,
    saved_weights,
    task_heads,
)

ARCHIVES = (".tar", ".tar.gz", ".tgz")
# Endings of weight files; given one, its folder is read.
WEIGHTS = (".safetensors", safetensor_files.INDEX_FILE, ".weights.h5")
# Prefix of the encoder's names.
BODY = "bert/"
POOLER = "bert/pooler/"
# Settings of a config that no weight's shape depends on.
FUNCTION = ("num_attention_heads", "hidden_act", "inner_group_num")
SENTENCEPIECE_FILE = "spiece.model"
# Settings of a tokenizer as transformers records them.
HF_SETTINGS = "tokenizer_config.json"
# Settings of a tokenizer that its vocabulary does not contain.
CASING = {"do_lower_case", "keep_accents"}
# An archive that exceeds both limits is no checkpoint: weights compress little.
MAX_UNPACKED = 200_000_000  # Bytes.
MAX_COMPRESSION = 20
MAX_MEMBERS = 10_000
# Errors of damaged archives, in addition to those of tarfile.
_DAMAGE = (zlib.error, lzma.LZMAError, ValueError)
# WordPiece vocabularies are called vocab.txt or, say, vocab_chinese.txt.
VOCABULARIES = ("*.model", "vocab*.txt")


@dataclasses.dataclass(frozen=True)
class Pretrained:
    """A pretrained or fine-tuned model.

    Attributes:
      source: the checkpoint's prefix, or a folder.
      values: dict from canonical name to array.
      config: the AlbertConfig next to the weights, or None.
      tokenizer: tokenizer of the vocabulary next to the weights, or None.
      vocabulary_file: name and content of the vocabulary's file, or None.
      remarks: notes on converted or omitted weights.
      head: head of a fine-tuned model; None if there is none or its kind is
        ambiguous.
      tokenizer_settings: settings of the tokenizer in pretraining, as recorded
        next to the weights, or None.
    """

    source: str
    values: dict[str, np.ndarray]
    config: AlbertConfig | None
    tokenizer: tokenization.Tokenizer | None
    vocabulary_file: tuple[str, bytes] | None
    remarks: Sequence[str] = ()
    head: task_heads.TaskHead | None = None
    tokenizer_settings: dict | None = None


@dataclasses.dataclass(frozen=True)
class Complete(Pretrained):
    """A Pretrained with config and vocabulary."""

    config: AlbertConfig
    tokenizer: tokenization.Tokenizer
    vocabulary_file: tuple


def complete(pretrained: Pretrained) -> Complete:
    """Returns the model as a Complete.

    Raises:
      ValueError: if the config or the vocabulary is missing.
    """
    flags = {
        "--albert_config_file": pretrained.config,
        "--spm_model_file or --vocab_file": pretrained.tokenizer,
    }
    missing = [flag for flag, value in flags.items() if value is None]
    if missing:
        raise ValueError(
            f"{pretrained.source} lacks a config or vocabulary. Give "
            f"{' and '.join(missing)}."
        )
    return Complete(**vars(pretrained))


def read_pretrained(
    path: filesystem.Path, *, keep_slots: bool = False
) -> Pretrained:
    """Reads a model.

    Args:
      path: a TF1 prefix, .index file, folder or tar archive; a TF Hub module
        as a folder or tar archive; a Hugging Face folder or KerasHub preset,
        or its weights file. Of a folder of fine-tuning, the best checkpoint is
        read, of one of pretraining the newest.
      keep_slots: whether to read the optimizer's slots and the step.

    Raises:
      FileNotFoundError: if there is no model.
      ValueError: if the model is damaged or of another kind.
    """
    path = str(path)
    if path.startswith(("http://", "https://")):
        raise ValueError(
            f"{path} is not on this machine. Download it, and give the file or "
            "the folder."
        )
    if path.endswith(ARCHIVES):
        with unpacked(path) as folder:
            return read_pretrained(folder, keep_slots=keep_slots)
    if path.endswith(WEIGHTS):
        path, name = os.path.split(path)
        path = path or "."
        if not filesystem.exists(os.path.join(path, huggingface.CONFIG_FILE)):
            raise FileNotFoundError(
                f"There is no {huggingface.CONFIG_FILE} next to {name} in "
                f"{path}. Was the folder copied completely?"
            )
    if filesystem.exists(os.path.join(path, huggingface.CONFIG_FILE)):
        return _read_described(path)
    is_module = filesystem.exists(os.path.join(path, "saved_model.pb"))
    if is_module:
        prefix = os.path.join(path, "variables", "variables")
        folder = os.path.join(path, "assets")
    else:
        prefix = checkpoints.find_checkpoint(path)
        folder = os.path.dirname(prefix) or "."
        trained = checkpoints.find_trained(path)
        head_file = os.path.join(path, task_heads.HEAD_FILE)
        if trained and filesystem.exists(head_file):
            prefix = trained[-1]
    values = checkpoints.read_checkpoint(prefix)
    if is_module and saved_weights.OBJECT_GRAPH in values:
        values = saved_weights.read_weights(values, path)
    if not keep_slots:
        values = {n: v for n, v in values.items() if not checkpoints.is_slot(n)}
    described = read_description(folder)
    return dataclasses.replace(
        described,
        source=prefix,
        values=values,
        head=_find_head(values, folder, prefix),
    )


def _find_head(values, folder, prefix):
    """Returns the head of weights, as the files of their folder describe it."""
    head = task_heads.find_head(values, task_heads.read_head(folder), prefix)
    if head and head.kind == "conditional_spans" and head.threshold is None:
        threshold = task_heads.find_threshold(folder, prefix)
        head = dataclasses.replace(head, threshold=threshold)
    return head


def _read_described(path):
    """Reads a folder with a config.json of transformers or KerasHub."""
    tokenizer, file = _vocabulary(path)
    head = None
    if keras_hub.is_preset(path):
        config = keras_hub.read_config(path)
        values, remarks = keras_hub.read_weights(path, config)
        if not tokenizer:
            tokenizer, content = keras_hub.read_tokenizer(path)
            file = tokenizer and (SENTENCEPIECE_FILE, content)
    else:
        config = huggingface.read_config(path)
        values, remarks, head = huggingface.read_weights(path, config)
    settings = tokenization.read_settings(path)
    if settings is None and tokenizer:
        settings = _recorded_settings(path, tokenizer)
    return Pretrained(
        path, values, config, tokenizer, file, remarks, head, settings
    )


def _recorded_settings(folder, tokenizer):
    """Returns the tokenizer's settings that other packages record."""
    recorded = tokenization.read_settings(folder, HF_SETTINGS) or {}
    names = CASING
    if not keras_hub.is_preset(folder):
        names = CASING & recorded.keys()
    return {name: tokenizer.settings[name] for name in names}


def read_description(folder: filesystem.Path) -> Pretrained:
    """Reads the config and vocabulary of a folder, without weights."""
    config_file = os.path.join(folder, CONFIG_FILE)
    config = None
    if filesystem.exists(config_file):
        config = AlbertConfig.from_json_file(config_file)
    tokenizer, file = _vocabulary(folder)
    settings = tokenization.read_settings(folder)
    return Pretrained(
        str(folder), {}, config, tokenizer, file, tokenizer_settings=settings
    )


@contextlib.contextmanager
def unpacked(path: filesystem.Path) -> Iterator[str]:
    """Unpacks an archive temporarily; yields its folder with a model.

    Raises:
      ValueError: if the archive is damaged, is too large, contains links or
        paths outside its folder, or does not contain exactly one checkpoint.
    """
    content = filesystem.read_file(path)
    with tempfile.TemporaryDirectory(prefix="albert_tf-") as folder:
        try:
            with tarfile.open(fileobj=io.BytesIO(content)) as archive:
                problem = _find_problem(archive, len(content))
                if problem is None:
                    # Python before 3.12 may lack it; `_find_problem` alone
                    # protects there.
                    is_known = hasattr(tarfile, "data_filter")
                    safe: dict = {"filter": "data"} if is_known else {}
                    archive.extractall(folder, **safe)
        except (tarfile.TarError, EOFError, OSError, *_DAMAGE) as error:
            if getattr(error, "errno", None):  # A disk error.
                raise
            raise ValueError(
                f"{path} cannot be unpacked: {error}. Was the download cut off?"
            ) from error
        if problem:
            raise ValueError(f"{path} {problem} Nothing was unpacked.")
        root = pathlib.Path(folder)
        folders = {p.parent for p in root.rglob("*.index")}
        folders = {p.parent if p.name == "variables" else p for p in folders}
        for name in ("*.safetensors", keras_hub.WEIGHTS_FILE):
            folders |= {p.parent for p in root.rglob(name)}
        if len(folders) != 1:
            raise ValueError(
                f"{path} has {len(folders)} folders with a checkpoint; wanted "
                "one. Unpack it and give the folder to read."
            )
        yield str(folders.pop())


def _find_problem(archive, size):
    """Returns why an archive of `size` bytes must not be unpacked, or None.

    Only headers are read, up to the first problem.
    """
    limit = max(MAX_UNPACKED, MAX_COMPRESSION * size)
    unpacked_size = 0
    for number, member in enumerate(archive, 1):
        parts = pathlib.PurePosixPath(member.name).parts
        is_inside = ".." not in parts and not member.name.startswith("/")
        if not is_inside or not (member.isfile() or member.isdir()):
            return (
                f"contains {member.name!r}, which is not a regular file or "
                "leads outside the archive's folder."
            )
        unpacked_size += member.size
        if unpacked_size > limit or number > MAX_MEMBERS:
            return (
                f"has {size:,} bytes but unpacks to at least "
                f"{unpacked_size:,} in {number:,} files; wanted at most "
                f"{limit:,} in {MAX_MEMBERS:,}. If you trust it, unpack it and "
                "give the folder."
            )
    # The checksum of gzip is at the end of its data, after the last member.
    while archive.fileobj.read(1 << 20):
        pass
    return None


def _vocabulary(folder):
    """Returns the tokenizer and file of a folder's only vocabulary.

    A run that was resumed with a copy of it may have it under two names.
    """
    paths = [
        os.path.join(folder, name)
        for name in filesystem.list_folder(folder)
        if any(fnmatch.fnmatch(name, pattern) for pattern in VOCABULARIES)
    ]
    contents = set(map(filesystem.read_file, paths))
    if len(contents) != 1:
        return None, None
    kind = "spm_model_file" if paths[0].endswith(".model") else "vocab_file"
    settings = tokenization.read_settings(folder)
    if settings is None:
        settings = tokenization.read_settings(folder, HF_SETTINGS) or {}
    names = CASING & settings.keys()
    arguments: dict = {kind: paths[0], **{n: settings[n] for n in names}}
    tokenizer = tokenization.build_tokenizer(**arguments)
    digest = tokenizer.settings["sha256"]
    if settings.get("sha256", digest) != digest:
        raise ValueError(
            f"{paths[0]} has another hash than {tokenization.SETTINGS_FILE} "
            "next to it records. Was the vocabulary replaced? Restore it, or "
            "remove the settings if it is the right one."
        )
    return tokenizer, (os.path.basename(paths[0]), contents.pop())


def read_vocabulary_file(
    path: filesystem.Path, usual: str = "vocab.txt"
) -> tuple[str, bytes]:
    """Returns the name and content of a vocabulary.

    Args:
      path: its file.
      usual: the name to return if the file has none of `VOCABULARIES`, by which
        a folder's vocabulary is found.
    """
    name = os.path.basename(path)
    if not any(fnmatch.fnmatch(name, pattern) for pattern in VOCABULARIES):
        name = usual
    return name, filesystem.read_file(path)


def check_vocabulary(tokenizer: tokenization.Tokenizer, config: AlbertConfig):
    """Raises ValueError if vocabulary and model differ in size."""
    if tokenizer.vocab_size != config.vocab_size:
        raise ValueError(
            f"The vocabulary {tokenizer.settings['vocabulary']} has "
            f"{tokenizer.vocab_size} pieces, the model {config.vocab_size}. "
            "Was the model trained with another vocabulary?"
        )


def check_same_vocabulary(
    pretrained: Pretrained,
    settings: dict | None,
    keys: Sequence[str] = ("sha256", "do_lower_case", "keep_accents"),
):
    """Checks that data or a vocabulary belong to a model.

    Args:
      pretrained: the model; what is not recorded next to it is not checked.
      settings: settings of the tokenizer of the data, or of the vocabulary;
        None if unknown.
      keys: the settings to compare.

    Raises:
      ValueError: if it was trained with another vocabulary or casing.
    """
    settings = settings or {}
    recorded = pretrained.tokenizer_settings or {}
    if pretrained.tokenizer:
        known = pretrained.tokenizer.settings
        recorded = recorded | {n: known[n] for n in ("sha256", "vocabulary")}
    for key in keys:
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
    pretrained: Pretrained,
    unused: Sequence[str] = (),
):
    """Builds a float32 model with pretrained weights.

    Args:
      model_class: function from an AlbertConfig to a model.
      pretrained: a `Pretrained` with all weights of the model.
      unused: prefixes of the names of weights that may be missing, as the
        caller does not use them; they are then random.

    Raises:
      ValueError: if there is no config, a weight is missing or its shape
        differs.
    """
    if pretrained.config is None:
        raise ValueError(
            f"There is no {CONFIG_FILE} next to {pretrained.source}. Put the "
            "model's config there."
        )
    model = model_class(pretrained.config)
    checkpoints.restore(
        modeling.named_weights(model),
        pretrained.values,
        pretrained.source,
        unused,
    )
    return model


def replace_files(
    pretrained: Pretrained,
    *,
    albert_config_file: filesystem.Path | None = None,
    spm_model_file: filesystem.Path | None = None,
    vocab_file: filesystem.Path | None = None,
    do_lower_case: bool | None = None,
) -> Pretrained:
    """Replaces the config or vocabulary of a model.

    Accents are kept if the model or the vocabulary was made with them.

    Args:
      pretrained: a `Pretrained`.
      albert_config_file: JSON file, or None to keep the config.
      spm_model_file: SentencePiece model, or None.
      vocab_file: WordPiece vocabulary, or None.
      do_lower_case: whether the given vocabulary is for lowercased text; None
        for what is recorded next to the model or the vocabulary, or else True.

    Raises:
      ValueError: if the vocabulary is not the recorded one, or contradicts the
        config.
    """
    if albert_config_file:
        config = AlbertConfig.from_json_file(albert_config_file)
        pretrained = dataclasses.replace(pretrained, config=config)
    if path := spm_model_file or vocab_file:
        known = pretrained.tokenizer_settings or {}
        if pretrained.tokenizer:
            known = known | {"sha256": pretrained.tokenizer.settings["sha256"]}
        casing = read_casing(path, known)
        if do_lower_case is not None:
            casing["do_lower_case"] = do_lower_case
        tokenizer = tokenization.build_tokenizer(
            spm_model_file=spm_model_file, vocab_file=vocab_file, **casing
        )
        pretrained = dataclasses.replace(
            pretrained,
            tokenizer=tokenizer,
            vocabulary_file=read_vocabulary_file(
                path, SENTENCEPIECE_FILE if spm_model_file else "vocab.txt"
            ),
        )
    if pretrained.config and pretrained.tokenizer:
        check_vocabulary(pretrained.tokenizer, pretrained.config)
    if path:
        recorded = dataclasses.replace(pretrained, tokenizer=None)
        check_same_vocabulary(recorded, tokenizer.settings, keys=["sha256"])
    return pretrained


def read_casing(path: filesystem.Path, settings: dict | None) -> dict:
    """Returns do_lower_case and keep_accents as recorded for a vocabulary.

    Args:
      path: file of the vocabulary; settings may be next to it.
      settings: settings that are recorded elsewhere, or None.
    """
    digest = hashlib.sha256(filesystem.read_file(path)).hexdigest()
    beside = tokenization.read_settings(os.path.dirname(path))
    for known in (settings, beside):
        if known and known.get("sha256") == digest:
            return {name: known[name] for name in CASING & known.keys()}
    return {}


def initialize(
    manager: checkpoints.CheckpointManager,
    weights: dict,
    config: AlbertConfig,
    pretrained: Pretrained | None = None,
    *,
    from_group0: bool = False,
    tokenizer_settings: dict | None = None,
    body_only: bool = False,
) -> str:
    """Restores the newest checkpoint, or starts from another model.

    Args:
      manager: a CheckpointManager of the whole training.
      weights: dict from name to variable, without the optimizer.
      config: the model's AlbertConfig. If it shares fewer weights than
        `pretrained`, shared weights are copied.
      pretrained: a `Pretrained` to start from if the manager's folder has no
        checkpoint; None for random weights. Its optimizer slots are not used.
      from_group0: see `regrouping.spread_group0`.
      tokenizer_settings: settings of the tokenizer that made the training
        data, to compare with the model's vocabulary; None if unknown.
      body_only: whether heads start from random weights, even if the
        pretrained model has heads of the same name.

    Returns:
      A sentence that describes the source of the weights.

    Raises:
      ValueError: if the weights do not fit the model, or the vocabularies
        differ.
    """
    if prefix := manager.restore_latest():
        return f"Resuming from {prefix}."
    if not pretrained:
        return "Starting from random weights."
    check_same_vocabulary(pretrained, tokenizer_settings)
    check_same_function(pretrained, config)
    values, remarks = pretrained.values, list(pretrained.remarks)
    new_prefixes = ["cls/"]
    if body_only:
        values = {n: v for n, v in values.items() if n.startswith(BODY)}
        new_prefixes = [n for n in weights if not n.startswith(BODY)]
    # Some of Hugging Face's models have no pooler, or ours of zeros.
    pooler = [n for n in values if n.startswith(POOLER)]
    if not any(values[n].any() for n in pooler):
        values = {n: v for n, v in values.items() if n not in pooler}
        new_prefixes.append(POOLER)
    if from_group0:
        values = regrouping.spread_group0(values, weights)
    elif pretrained.config and pretrained.config != config:
        groups = regrouping.names_of_groups(values)
        values = regrouping.regroup(values, pretrained.config, config)
        if regrouping.names_of_groups(values) != groups:
            remarks.append("shared weights were copied to each layer")
    if not from_group0:
        check_all_layers(values, weights, pretrained.source)
    new = checkpoints.restore(weights, values, pretrained.source, new_prefixes)
    parts = [f"new: {', '.join(new) or 'none'}", *remarks]
    return (
        f"Restored {len(weights) - len(new)} of {len(weights)} variables from "
        f"{pretrained.source}; {'; '.join(parts)}."
    )


def check_same_function(pretrained: Pretrained, config: AlbertConfig) -> None:
    """Raises ValueError if equal weights would compute something else.

    The shapes of the weights do not depend on these settings.
    """
    if pretrained.config is None:
        return
    for name in FUNCTION:
        found, wanted = (getattr(c, name) for c in (pretrained.config, config))
        if found != wanted:
            raise ValueError(
                f"{pretrained.source} was trained with {name} {found!r}, the "
                f"config has {wanted!r}: with it, the weights compute "
                "something else. Use the model's own config."
            )


def check_all_layers(values: dict, weights: dict, source) -> None:
    """Raises ValueError if the model has no place for some layers' weights."""
    names = regrouping.names_of_groups(values) - weights.keys()
    if surplus := sorted(n for n in names if not checkpoints.is_slot(n)):
        raise ValueError(
            f"{source} has weights of layers that the config has not, such as "
            f"{surplus[0]}. Is it a checkpoint of another architecture (groups,"
            " inner groups, parameter_sharing)?"
        )


def select(pretrained: Pretrained, form: str) -> Pretrained:
    """Returns the part of a model that a format can represent.

    The omitted part is described in `remarks`.

    Args:
      pretrained: a `Pretrained`.
      form: a format, as for `write_pretrained`.

    Raises:
      ValueError: if the format cannot represent the encoder or vocabulary.
    """
    if form != "keras_hub" or pretrained.config is None:
        return pretrained
    values, remarks = keras_hub.select(
        pretrained.values, pretrained.config, pretrained.tokenizer
    )
    remarks = [*pretrained.remarks, *remarks]
    return dataclasses.replace(
        pretrained, values=values, remarks=remarks, head=None
    )


def write_pretrained(folder: filesystem.Path, pretrained, form: str):
    """Writes a model.

    Args:
      folder: an existing folder.
      pretrained: a `Pretrained` with a config.
      form: the format. "tf1": the release's, called model.ckpt-best, which
        shares weights only by groups; "own": the same with
        `parameter_sharing`; "hf": Hugging Face; "keras_hub": a preset of what
        `select` returns.
    """
    config, values = pretrained.config, pretrained.values
    tokenizer = pretrained.tokenizer
    head = task_heads.find_head(values, pretrained.head, pretrained.source)
    if form == "hf":
        huggingface.write_folder(folder, values, config, tokenizer, head)
    elif form == "keras_hub":
        keras_hub.write_folder(folder, values, config, tokenizer)
    else:
        described = config.to_dict()
        if form == "tf1":
            target = regrouping.grouped_config(config, regrouping.release_group)
            values = regrouping.regroup(values, config, target)
            described = target.to_dict()
            del described["parameter_sharing"]
        checkpoints.write_checkpoint(
            os.path.join(folder, f"{checkpoints.PREFIX}-best"), values
        )
        filesystem.write_json(os.path.join(folder, CONFIG_FILE), described)
        if head:
            path = os.path.join(folder, task_heads.HEAD_FILE)
            filesystem.write_json(path, task_heads.describe_head(head))
    if tokenizer:
        name, content = pretrained.vocabulary_file
        if form in ("hf", "keras_hub"):
            is_pieces = tokenizer.kind == "sentencepiece"
            name = SENTENCEPIECE_FILE if is_pieces else "vocab.txt"
        filesystem.write_file(os.path.join(folder, name), content)
        tokenizer.write_settings(folder)

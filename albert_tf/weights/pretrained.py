"""Pretrained models, in whatever form their users hold them.

`read_pretrained` takes the release's TF1 checkpoints (a prefix, an .index
file, a folder, a tar archive), our own, which are of the same kind, TF Hub's
modules (the release's, its `/3`, and what export_to_tfhub.py writes; a folder
or tar), Hugging Face folders and KerasHub's presets. The result knows its
weights by canonical name, its config and its vocabulary.
"""

import contextlib
import dataclasses
import fnmatch
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
# Endings of files that stand for the folder they are in.
WEIGHTS = (".safetensors", safetensor_files.INDEX_FILE, ".weights.h5")
# What the encoder's names begin with.
BODY = "bert/"
SENTENCEPIECE_FILE = "spiece.model"
# Weights compress little: what becomes larger than this and by that factor
# is no checkpoint.
MAX_UNPACKED = 200_000_000
MAX_COMPRESSION = 20
MAX_MEMBERS = 10_000
# What reading a damaged archive raises beside errors of tarfile.
_DAMAGE = (zlib.error, lzma.LZMAError, ValueError)
# What may be a WordPiece vocabulary: vocab.txt, vocab_chinese.txt.
VOCABULARIES = ("*.model", "vocab*.txt")


@dataclasses.dataclass(frozen=True)
class Pretrained:
    """A model that was read.

    Attributes:
      source: where from: a checkpoint's prefix or a folder.
      values: dict from canonical name to array.
      config: its AlbertConfig, or None if none lies beside it.
      tokenizer: its tokenizer, or None if no vocabulary lies beside it.
      vocabulary_file: name and content of the vocabulary's file, or None.
      remarks: what was converted or left out.
      head: of a fine-tuned model; None where there is none, or the weights
        could be of several.
    """

    source: str
    values: dict[str, np.ndarray]
    config: AlbertConfig | None
    tokenizer: tokenization.Tokenizer | None
    vocabulary_file: tuple[str, bytes] | None
    remarks: Sequence[str] = ()
    head: task_heads.TaskHead | None = None


@dataclasses.dataclass(frozen=True)
class Complete(Pretrained):
    """One whose config and vocabulary are there."""

    config: AlbertConfig
    tokenizer: tokenization.Tokenizer
    vocabulary_file: tuple


def complete(pretrained: Pretrained) -> Complete:
    """Returns the same as a Complete.

    Raises:
      ValueError: if config or vocabulary are missing.
    """
    flags = {
        "--albert_config_file": pretrained.config,
        "--spm_model_file or --vocab_file": pretrained.tokenizer,
    }
    missing = [flag for flag, value in flags.items() if value is None]
    if missing:
        raise ValueError(
            f"{pretrained.source} has no config or vocabulary of its own; give "
            f"{' and '.join(missing)}."
        )
    return Complete(**vars(pretrained))


def read_pretrained(
    path: filesystem.Path, *, keep_slots: bool = False
) -> Pretrained:
    """Reads a model.

    Args:
      path: a TF1 prefix, .index file, folder or tar archive; a TF Hub module
        as a folder or tar archive; a Hugging Face folder or a preset of
        KerasHub, or a file of its weights.
      keep_slots: whether the optimizer's slots and the step are read, too.

    Raises:
      FileNotFoundError: if there is nothing that can be read.
      ValueError: if what there is, is damaged or of another kind.
    """
    path = str(path)
    if path.endswith(ARCHIVES):
        with unpacked(path) as folder:
            return read_pretrained(folder, keep_slots=keep_slots)
    if path.endswith(WEIGHTS):
        path, name = os.path.split(path)
        path = path or "."
        if not filesystem.exists(os.path.join(path, huggingface.CONFIG_FILE)):
            raise FileNotFoundError(
                f"There is no {huggingface.CONFIG_FILE} beside {name} in "
                f"{path}. Was all of it copied?"
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
    values = checkpoints.read_checkpoint(prefix)
    if is_module and saved_weights.OBJECT_GRAPH in values:
        values = saved_weights.read_weights(values, path)
    if not keep_slots:
        values = {n: v for n, v in values.items() if not checkpoints.is_slot(n)}
    head = task_heads.find_head(values, task_heads.read_head(folder), prefix)
    described = read_description(folder)
    return dataclasses.replace(
        described, source=prefix, values=values, head=head
    )


def _read_described(path):
    """Reads a folder with the config.json of transformers or KerasHub."""
    tokenizer, file = _vocabulary(path)
    if not keras_hub.is_preset(path):
        config = huggingface.read_config(path)
        values, remarks, head = huggingface.read_weights(path, config)
        return Pretrained(path, values, config, tokenizer, file, remarks, head)
    config = keras_hub.read_config(path)
    values, remarks = keras_hub.read_weights(path, config)
    if not tokenizer:
        tokenizer, content = keras_hub.read_tokenizer(path)
        file = tokenizer and (SENTENCEPIECE_FILE, content)
    return Pretrained(path, values, config, tokenizer, file, remarks)


def read_description(folder: filesystem.Path) -> Pretrained:
    """Reads config and vocabulary that lie in a folder; values are empty."""
    config_file = os.path.join(folder, CONFIG_FILE)
    config = None
    if filesystem.exists(config_file):
        config = AlbertConfig.from_json_file(config_file)
    return Pretrained(str(folder), {}, config, *_vocabulary(folder))


@contextlib.contextmanager
def unpacked(path: filesystem.Path) -> Iterator[str]:
    """Unpacks an archive, and yields the folder in it that holds a model.

    Raises:
      ValueError: if it is damaged, would write outside its folder or far more
        than its own size, or holds no checkpoint.
    """
    content = filesystem.read_file(path)
    with tempfile.TemporaryDirectory(prefix="albert_tf-") as folder:
        try:
            with tarfile.open(fileobj=io.BytesIO(content)) as archive:
                problem = _find_problem(archive, len(content))
                if problem is None:
                    # Python before 3.12 may not know it; `_find_problem` does
                    # the same there.
                    is_known = hasattr(tarfile, "data_filter")
                    safe: dict = {"filter": "data"} if is_known else {}
                    archive.extractall(folder, **safe)
        except (tarfile.TarError, EOFError, OSError, *_DAMAGE) as error:
            if getattr(error, "errno", None):  # Of the disk, not the archive.
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
                f"{path} has {len(folders)} folders with a checkpoint. Unpack "
                "it and name the one to read."
            )
        yield str(folders.pop())


def _find_problem(archive, size):
    """Says why an archive of some bytes is not unpacked, or returns None.

    Headers alone are read, up to the first that is refused.
    """
    limit = max(MAX_UNPACKED, MAX_COMPRESSION * size)
    unpacked_size = 0
    for number, member in enumerate(archive, 1):
        parts = pathlib.PurePosixPath(member.name).parts
        is_inside = ".." not in parts and not member.name.startswith("/")
        if not is_inside or not (member.isfile() or member.isdir()):
            return (
                f"holds {member.name!r}, which is a link or would be written "
                "outside its folder."
            )
        unpacked_size += member.size
        if unpacked_size > limit or number > MAX_MEMBERS:
            return (
                f"has {size:,} bytes and unpacks to {unpacked_size:,} in "
                f"{number:,} files or more, as no checkpoint does. Where it "
                "can be trusted, unpack it and name the folder."
            )
    # gzip compares its sum where its data ends, behind the last member.
    while archive.fileobj.read(1 << 20):
        pass
    return None


def _vocabulary(folder):
    """The tokenizer of the only vocabulary in a folder, and its file."""
    paths = [
        os.path.join(folder, name)
        for name in filesystem.list_folder(folder)
        if any(fnmatch.fnmatch(name, pattern) for pattern in VOCABULARIES)
    ]
    if len(paths) != 1:
        return None, None
    kind = "spm_model_file" if paths[0].endswith(".model") else "vocab_file"
    settings = tokenization.read_settings(folder)
    if settings is None:
        name = "tokenizer_config.json"
        settings = tokenization.read_settings(folder, name) or {}
    names = {"do_lower_case", "keep_accents"} & settings.keys()
    arguments: dict = {kind: paths[0], **{n: settings[n] for n in names}}
    tokenizer = tokenization.build_tokenizer(**arguments)
    digest = tokenizer.settings["sha256"]
    if settings.get("sha256", digest) != digest:
        raise ValueError(
            f"{paths[0]} is not the vocabulary that "
            f"{tokenization.SETTINGS_FILE} beside it tells of, by its hash. "
            "Put the right one there; if this is it, remove the settings."
        )
    return tokenizer, read_vocabulary_file(paths[0])


def read_vocabulary_file(path: filesystem.Path) -> tuple[str, bytes]:
    """Returns a file's name and its content."""
    return os.path.basename(path), filesystem.read_file(path)


def check_vocabulary(tokenizer: tokenization.Tokenizer, config: AlbertConfig):
    """Raises ValueError if a tokenizer is not of a model's vocabulary."""
    if tokenizer.vocab_size != config.vocab_size:
        raise ValueError(
            f"The vocabulary {tokenizer.settings['vocabulary']} has "
            f"{tokenizer.vocab_size} pieces, the model {config.vocab_size}. "
            "Was it trained with another vocabulary?"
        )


def check_same_vocabulary(pretrained: Pretrained, settings: dict | None):
    """Raises ValueError if data is known to be of another vocabulary."""
    if not pretrained.tokenizer or not settings:
        return
    theirs = pretrained.tokenizer.settings
    if theirs["sha256"] != settings["sha256"]:
        raise ValueError(
            f"{pretrained.source} lies beside the vocabulary "
            f"{theirs['vocabulary']}, the data was made with "
            f"{settings['vocabulary']}, which is another one. The weights "
            "would mean other pieces; make the data again."
        )


def build_model(model_class: Callable, pretrained: Pretrained):
    """Builds a model in float32 with the weights that were read, all of them.

    Raises:
      ValueError: if there is no config, or a weight is missing or of another
        shape.
    """
    if pretrained.config is None:
        raise ValueError(
            f"There is no {CONFIG_FILE} beside {pretrained.source}. Put the "
            "one it was trained with there."
        )
    model = model_class(pretrained.config)
    checkpoints.restore(
        modeling.named_weights(model), pretrained.values, pretrained.source
    )
    return model


def replace_files(
    pretrained: Pretrained,
    *,
    albert_config_file: filesystem.Path | None = None,
    spm_model_file: filesystem.Path | None = None,
    vocab_file: filesystem.Path | None = None,
    do_lower_case: bool = True,
) -> Pretrained:
    """Takes config or vocabulary from other files than those beside a model.

    Args:
      pretrained: a `Pretrained`.
      albert_config_file: JSON file, or None.
      spm_model_file: SentencePiece model, or None.
      vocab_file: WordPiece vocabulary, or None.
      do_lower_case: for a vocabulary that is given.

    Raises:
      ValueError: if vocabulary and config do not fit each other.
    """
    if albert_config_file:
        config = AlbertConfig.from_json_file(albert_config_file)
        pretrained = dataclasses.replace(pretrained, config=config)
    if path := spm_model_file or vocab_file:
        tokenizer = tokenization.build_tokenizer(
            spm_model_file=spm_model_file,
            vocab_file=vocab_file,
            do_lower_case=do_lower_case,
        )
        pretrained = dataclasses.replace(
            pretrained,
            tokenizer=tokenizer,
            vocabulary_file=read_vocabulary_file(path),
        )
    if pretrained.config and pretrained.tokenizer:
        check_vocabulary(pretrained.tokenizer, pretrained.config)
    return pretrained


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
    """Goes on from the newest checkpoint, or begins from another model.

    Args:
      manager: a CheckpointManager of the whole training.
      weights: dict from name to variable, the model's alone.
      config: the model's AlbertConfig. Where it shares less than the one that
        was read, shared weights are copied.
      pretrained: a `Pretrained` to begin from where the manager's folder has no
        checkpoint, or None. Its optimizer is left behind.
      from_group0: see `checkpoints.spread_group0`.
      tokenizer_settings: of the tokenizer that made the training data, to be
        compared with the vocabulary beside the model; None if unknown.
      body_only: whether heads begin anew, even if the model has their names.

    Returns:
      What was done, a sentence.

    Raises:
      ValueError: if weights do not fit, or are of another vocabulary.
    """
    if prefix := manager.restore_latest():
        return f"Goes on from {prefix}."
    if not pretrained:
        return "Begins with random weights."
    check_same_vocabulary(pretrained, tokenizer_settings)
    values, remarks = pretrained.values, list(pretrained.remarks)
    new_prefixes = ["cls/"]
    if body_only:
        values = {n: v for n, v in values.items() if n.startswith(BODY)}
        new_prefixes = [n for n in weights if not n.startswith(BODY)]
    if from_group0:
        values = regrouping.spread_group0(values, weights)
    elif pretrained.config and pretrained.config != config:
        groups = regrouping.names_of_groups(values)
        values = regrouping.regroup(values, pretrained.config, config)
        if regrouping.names_of_groups(values) != groups:
            remarks.append("each layer begins with the weights it shared")
    new = checkpoints.restore(weights, values, pretrained.source, new_prefixes)
    parts = [f"new: {', '.join(new) or 'none'}", *remarks]
    return (
        f"Restored {len(weights) - len(new)} of {len(weights)} variables from "
        f"{pretrained.source}; {'; '.join(parts)}."
    )


def select(pretrained: Pretrained, form: str) -> Pretrained:
    """What a form can hold of a model; remarks say what is left out.

    Raises:
      ValueError: if the form cannot hold the rest.
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
    """Writes a model to a folder that exists.

    Args:
      folder: where.
      pretrained: a `Pretrained` with a config.
      form: "tf1", as the release (groups of weights are the only sharing, the
        name is model.ckpt-best); "own", which keeps `parameter_sharing`;
        "hf"; or "keras_hub", without what `select` leaves out.
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

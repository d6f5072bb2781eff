"""Exports an encoder and its text preprocessor as TF Hub SavedModels."""

import contextlib
import dataclasses
import logging
import os
import tempfile

from albert_tf import filesystem, ownership
from albert_tf.export import hub, saved_models
from albert_tf.model import heads, modeling
from albert_tf.model.config import CONFIG_FILE
from albert_tf.programs import models, shared
from albert_tf.text import tokenization
from albert_tf.training import results_file
from albert_tf.weights import pretrained

PREPROCESS = "_preprocess"


def check_absent(path):
    """Raises ValueError if an output folder already exists."""
    if filesystem.exists(path):
        raise ValueError(
            f"{path} already exists. Give another --export_path, or remove it."
        )


def read_model(args):
    """Returns the `pretrained.Complete` given by the flags."""
    folder = args.albert_directory
    path = os.path.join(folder, args.checkpoint_name)
    is_default = args.checkpoint_name == type(args).checkpoint_name
    if is_default and not filesystem.exists(f"{path}.index"):
        path = folder
    elif is_default:
        newest = results_file.find_trained(folder)[-1]
        if newest != path:
            logging.warning(
                "%s is exported. It is older than %s, which was not scored: "
                "give its name in checkpoint_name for that one.",
                path,
                newest,
            )
    return pretrained.complete(models.read_checkpoint(args, path))


def write_assets(start, folder):
    """Writes config, settings and vocabulary to a folder; returns the paths."""
    vocabulary = models.write_vocabulary(start, folder)
    config = os.path.join(folder, CONFIG_FILE)
    filesystem.write_json(config, start.config.to_dict())
    start.tokenizer.write_settings(folder)
    settings = os.path.join(folder, tokenization.SETTINGS_FILE)
    return [config, settings, *vocabulary.values()]


def is_left_over(preprocessor, assets):
    """Whether a killed export left a preprocessor without its encoder.

    `assets` are the files that the current export gives it.
    """
    folder = os.path.join(preprocessor, "assets")
    wanted = {os.path.basename(path): path for path in assets}
    return filesystem.list_folder(folder) == sorted(wanted) and all(
        filesystem.read_file(path)
        == filesystem.read_file(os.path.join(folder, name))
        for name, path in wanted.items()
    )


@contextlib.contextmanager
def publishing(args, assets):
    """Yields temporary folders and renames them when the export ends.

    They are of the encoder and of the preprocessor; neither exists. The encoder
    is renamed last: if it exists, the export is complete. `assets` are those of
    the preprocessor.
    """
    path = args.export_path + PREPROCESS
    with (
        ownership.owning(f"{args.export_path}.export"),
        saved_models.appearing_at_once(args.export_path) as encoder,
    ):
        check_absent(args.export_path)
        if not args.with_preprocessor:
            yield encoder, None
            return
        with saved_models.appearing_at_once(path) as preprocessor:
            is_old = is_left_over(path, assets)
            if not is_old:
                check_absent(path)
            yield encoder, preprocessor
            if is_old:
                # Rename before removing: a half-removed folder would not be
                # recognized as unfinished, but this name is.
                parent, name = os.path.split(preprocessor)
                old = os.path.join(parent, f"{saved_models.UNFINISHED}{name}")
                filesystem.rename(path, old)
                filesystem.remove_folder(old)


def run(args):
    """Exports the encoder and the preprocessor."""
    path = args.export_path.rstrip("/") or "/"
    args = dataclasses.replace(args, export_path=path)
    if args.with_preprocessor:
        text_serving = shared.import_text_serving(
            "--with_preprocessor, the default,"
        )
    filesystem.check_folders_apart(
        {"--export_path": path}, {"--albert_directory": args.albert_directory}
    )
    check_absent(path)
    start = read_model(args)
    if args.with_preprocessor:
        length = start.config.choose_length(args.seq_length, 128, "seq_length")
        args = dataclasses.replace(args, seq_length=length)
    has_heads = heads.AlbertForPreTraining.is_complete_in(start.values)
    kind = heads.AlbertForPreTraining if has_heads else modeling.AlbertEncoder
    model = pretrained.build_model(kind, start)
    with tempfile.TemporaryDirectory() as folder:
        assets = write_assets(start, folder)
        with publishing(args, assets[1:]) as (encoder, preprocessor):
            # First, because it rejects some tokenizers.
            if args.with_preprocessor:
                text_serving.export_preprocessor(
                    preprocessor,
                    start.tokenizer,
                    seq_length=args.seq_length,
                    assets=assets[1:],
                )
            hub.export_encoder(
                encoder, model, tokenizer=start.tokenizer, assets=assets
            )
    if args.with_preprocessor:
        path = args.export_path + PREPROCESS
        print(f"Exported the preprocessor ({args.seq_length} tokens): {path}")
    rest = "" if has_heads else ", without pretraining heads"
    print(f"Exported the encoder of {start.source}{rest}: {args.export_path}")

"""Writes an encoder, and what turns text into its inputs, as for TF Hub.

python export_to_tfhub.py --albert_directory=albert_base \
    --export_path=hub/albert_en_base
"""

import dataclasses
import os
import tempfile

import tensorflow as tf

from albert_tf import (
    checkpoints,
    filesystem,
    flags,
    heads,
    hub,
    modeling,
    pretrained,
    programs,
    tokenization,
)
from albert_tf.config import CONFIG_FILE
from albert_tf.flags import flag

PREPROCESS = "_preprocess"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportFlags:
    """The release's flags; what is ours stands last."""

    albert_directory: str = flag(
        required=True,
        help="Model: a folder, or anything that --init_checkpoint takes.",
    )
    checkpoint_name: str = flag(
        "model.ckpt-best",
        "Checkpoint in --albert_directory; where it is not there, the newest.",
    )
    do_lower_case: bool | None = flag(
        help="Whether text is lower-cased. Default: as is stored beside the "
        "vocabulary, else true."
    )
    use_einsum: bool = flag(True, "Ignored: it changed no result.")
    export_path: str = flag(
        required=True,
        help="Folder of the encoder, which must not exist; the preprocessor's "
        f"is called the same with {PREPROCESS} behind.",
    )
    albert_config_file: str | None = flag(
        help="JSON file with the architecture. Default: the one beside the "
        "checkpoint."
    )
    spm_model_file: str | None = flag(
        help="SentencePiece model. Default: the vocabulary beside the "
        "checkpoint."
    )
    vocab_file: str | None = flag(help="WordPiece vocabulary, likewise.")
    with_preprocessor: bool = flag(
        True, "Whether to write the preprocessor; it needs tensorflow-text."
    )
    seq_length: int = flag(
        128, "Tokens of the preprocessor's sequences, unless a caller says."
    )


def check_flags(args):
    """Refuses what cannot work before anything is loaded."""
    paths = [args.export_path]
    if args.with_preprocessor:
        paths.append(args.export_path + PREPROCESS)
        if args.seq_length < 3:
            raise ValueError(
                f"--seq_length={args.seq_length}; wanted 3 or more."
            )
        programs.import_text_export("--with_preprocessor, the default,")
    for path in paths:
        if tf.io.gfile.exists(path):
            raise ValueError(
                f"{path} is already there. Give another --export_path, or "
                "remove it."
            )


def read_model(args):
    """Returns the `pretrained.Pretrained` that flags name, complete."""
    path = os.path.join(args.albert_directory, args.checkpoint_name)
    if not tf.io.gfile.exists(f"{path}.index"):
        path = args.albert_directory
    found = pretrained.replace_files(
        pretrained.read_pretrained(path),
        albert_config_file=args.albert_config_file,
        spm_model_file=args.spm_model_file,
        vocab_file=args.vocab_file,
    )
    for flag_names, value in (
        ("--albert_config_file", found.config),
        ("--spm_model_file or --vocab_file", found.tokenizer),
    ):
        if value is None:
            raise ValueError(f"Give {flag_names}: {found.source} has none.")
    positions = found.config.max_position_embeddings
    if args.with_preprocessor and args.seq_length > positions:
        raise ValueError(
            f"--seq_length={args.seq_length}, but the model has {positions} "
            "positions."
        )
    return found


def write_assets(args, found, folder):
    """Writes config, settings and vocabulary to a folder.

    Returns:
      Their paths, and the tokenizer as --do_lower_case wants it.
    """
    tokenizer = found.tokenizer
    name, content = found.vocabulary_file
    vocabulary = os.path.join(folder, name)
    filesystem.write_file(vocabulary, content)
    is_other = args.do_lower_case not in (
        None,
        tokenizer.settings["do_lower_case"],
    )
    if is_other:
        is_pieces = tokenizer.kind == "sentencepiece"
        kind = "spm_model_file" if is_pieces else "vocab_file"
        tokenizer = tokenization.build_tokenizer(
            **{kind: vocabulary},
            do_lower_case=args.do_lower_case,
            keep_accents=tokenizer.settings["keep_accents"],
        )
    config = os.path.join(folder, CONFIG_FILE)
    filesystem.write_json(config, found.config.to_dict())
    tokenizer.write_settings(folder)
    settings = os.path.join(folder, tokenization.SETTINGS_FILE)
    return [config, settings, vocabulary], tokenizer


def build_model(found):
    """Returns the model, with the heads of pretraining if they are there."""
    if heads.AlbertForPreTraining.is_complete_in(found.values):
        return pretrained.build_model(heads.AlbertForPreTraining, found)
    body = {
        name: value
        for name, value in found.values.items()
        if name.startswith(pretrained.BODY)
    }
    model = modeling.AlbertEncoder(found.config)
    checkpoints.restore(modeling.named_weights(model), body, found.source)
    return model


def run(args):
    """Writes the encoder, and the preprocessor."""
    args = dataclasses.replace(args, export_path=args.export_path.rstrip("/"))
    check_flags(args)
    found = read_model(args)
    model = build_model(found)
    with tempfile.TemporaryDirectory() as folder:
        assets, tokenizer = write_assets(args, found, folder)
        # First, as it refuses some tokenizers: then nothing is left behind.
        if args.with_preprocessor:
            path = args.export_path + PREPROCESS
            text_export = programs.import_text_export("--with_preprocessor")
            text_export.export_preprocessor(
                path, tokenizer, seq_length=args.seq_length, assets=assets[1:]
            )
            print(f"Preprocessor for {args.seq_length} tokens: {path}")
        hub.export_encoder(
            args.export_path, model, tokenizer=tokenizer, assets=assets
        )
        has_heads = not isinstance(model, modeling.AlbertEncoder)
        rest = "" if has_heads else ", without the heads of pretraining"
        print(f"Encoder of {found.source}{rest}: {args.export_path}")


if __name__ == "__main__":
    flags.launch(run, ExportFlags)

"""Reads the model that flags name, asks it, and writes models and files."""

import contextlib
import dataclasses
import logging
import os
import re
import shutil

from albert_tf import filesystem, ownership, progress
from albert_tf.commands import groups
from albert_tf.data import tables
from albert_tf.data.pretraining import corpus, markup
from albert_tf.reports import page_files
from albert_tf.text import tokenization
from albert_tf.weights import downloads, pretrained, vocabulary_files

# Texts that are answered at once.
CHUNK = 4096


def read_pretrained(path, args, keep_slots=False):
    """Returns a `pretrained.Pretrained`, with the files of `FilesFlags`."""
    model = pretrained.read_pretrained(path, keep_slots=keep_slots)
    return replace_files(model, args)


def read_checkpoint(args, path=None):
    """Returns the model of a path, by default that of --init_checkpoint.

    It logs what a config changed.
    """
    model = pretrained.read_pretrained(path or args.init_checkpoint)
    changed = replace_files(model, args)
    for remark in changed.remarks[len(model.remarks) :]:
        logging.warning("%s: %s.", model.source, remark)
    return changed


def replace_files(model, args):
    """Returns a model with the files of `FilesFlags`."""
    names = [field.name for field in dataclasses.fields(groups.FilesFlags)]
    files = {name: getattr(args, name) for name in names}
    return pretrained.replace_files(model, **files)


def split_lines(text):
    """Returns the lines of a flag's text that are not blank.

    Unlike `str.splitlines`, it keeps what pasted text has within a line, such
    as U+2028.
    """
    return [line for line in re.split(r"\r\n?|\n", text) if line.strip()]


def pair_lines(text, next_text):
    """Returns tuples of the lines of --text and, if given, of --next_text."""
    columns = [split_lines(x) for x in (text, next_text) if x and x.strip()]
    if len({len(column) for column in columns}) > 1:
        raise ValueError(
            f"--text has {len(columns[0])} lines, --next_text "
            f"{len(columns[1])}; wanted a second text for each text."
        )
    return list(zip(*columns, strict=True))


def read_text(args):
    """Yields the lines of --input_file, by `groups.TextFlags`.

    Raises:
      ValueError: if it is not all UTF-8 text.
    """
    files = filesystem.expand_files(args.input_file)
    text = markup.TextFormat(args.input_format, args.text_key)
    markup.say_formats(map(text.detect, filter(filesystem.size, files)))
    return corpus.read_lines(files, text.open, is_strict=True)


def check_are_lines(files):
    """Raises ValueError if files are tables, whose lines are no texts."""
    for path in files:
        name = str(path).lower()
        if name.endswith(".tsv") or tables.format_of(name) != "tsv":
            raise ValueError(
                f"{path} is a table by its name; wanted a text on each line. "
                "Write the column of the texts to a file, or is it plain text? "
                "Then call it .txt."
            )


def check_output_file(args):
    """Raises ValueError if --output_file is one of the inputs."""
    if args.output_file:
        filesystem.check_outputs(
            {"--output_file": [args.output_file]},
            {"--input_file": [args.input_file], **input_files(args)},
        )


def answer_texts(model, texts, verb):
    """Yields each of some texts with the model's answer.

    `model` is called with a list of texts; `verb` says what it does to them.
    """
    done = progress.Progress(verb, len(texts), "texts")
    for start in range(0, len(texts), CHUNK):
        some = texts[start : start + CHUNK]
        yield from zip(some, model(some), strict=True)
        done.add(len(some))
    done.clear()


def write_vocabulary(model, folder):
    """Writes the vocabulary of a `pretrained.Complete`.

    Returns:
      Its path, by the name of the argument of `tokenization.build_tokenizer`.
    """
    tokenizer = model.tokenizer
    name = vocabulary_files.choose_name(tokenizer.settings)
    path = os.path.join(folder, name)
    filesystem.write_file(path, tokenizer.content)
    return {tokenization.ARGUMENTS[tokenizer.kind]: path}


def input_files(args, others=()):
    """Returns a dict of flag -> files, as for `filesystem.check_outputs`.

    `others` are the models of --compare.
    """
    return {
        "--init_checkpoint": files_beside(args.init_checkpoint),
        "--compare": [file for path in others for file in files_beside(path)],
        "--albert_config_file": [args.albert_config_file],
        "--spm_model_file": [args.spm_model_file],
        "--vocab_file": [args.vocab_file],
    }


def files_beside(model):
    """Returns a model's path and the files in its folder."""
    model = downloads.find_model(model)
    files = filesystem.find_files(filesystem.folder_of(model), "*")
    # Pages and figures of earlier calls may be overwritten.
    return [model, *(f for f in files if not page_files.is_own(f))]


def print_remarks(*read):
    """Prints what was left out or changed when models were read."""
    for model in read:
        for remark in model.remarks:
            print(f"Note: {remark}.")


@contextlib.contextmanager
def creating_folder(path, source):
    """Context manager: yields a folder that becomes --to if nothing fails."""
    output_dir = path.rstrip("/")
    if os.path.islink(output_dir):
        output_dir = os.path.realpath(output_dir)
    if output_dir and os.path.realpath(output_dir) == os.getcwd():
        raise ValueError(
            f"--to={path} is the current folder, which cannot be replaced; "
            "wanted another one."
        )
    check_output(output_dir, source)
    with ownership.owning(output_dir):
        # Again, because another process may have written it meanwhile.
        check_output(output_dir, source)
        temporary = f"{output_dir}.incomplete"
        shutil.rmtree(temporary, ignore_errors=True)
        os.makedirs(temporary)
        try:
            yield temporary
        except BaseException:
            shutil.rmtree(temporary)
            raise
        if os.path.exists(output_dir):
            os.rmdir(output_dir)
        os.rename(temporary, output_dir)


def check_output(output_dir, source):
    """Raises ValueError if the output folder is not new, or in the source."""
    if filesystem.is_remote(output_dir):
        # A remote folder cannot be renamed as a whole.
        raise ValueError(
            f"--to={output_dir} is remote; wanted a local folder. Copy it from "
            "there."
        )
    if os.path.isfile(output_dir):
        raise ValueError(f"--to={output_dir} is a file; wanted a new folder.")
    if os.path.ismount(output_dir):
        raise ValueError(
            f"--to={output_dir} is a mount point, which cannot be replaced; "
            "wanted a new folder, such as one in it."
        )
    if not output_dir or (os.path.isdir(output_dir) and os.listdir(output_dir)):
        raise ValueError(
            f"--to={output_dir or '/'} is not empty; wanted a new folder."
        )
    if os.path.isdir(source):
        source = os.path.realpath(source)
        target = os.path.realpath(output_dir)
        if os.path.commonpath([source, target]) == source:
            raise ValueError(
                f"--to={output_dir} is inside --from={source}. Give a folder "
                "outside it."
            )

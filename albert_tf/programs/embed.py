"""Writes vectors of lines of text, a chunk of lines at a time."""

import contextlib
import json
import os
import shutil
import tempfile
import zipfile

import numpy as np

from albert_tf import filesystem, ownership, progress
from albert_tf.data import tables
from albert_tf.inference import remarks
from albert_tf.inference.embedder import Embedder
from albert_tf.programs import models

# Lines are sorted by length within a chunk: larger chunks need more memory,
# smaller ones more padding.
BATCHES_PER_CHUNK = 16


def run(args):
    """Embeds all lines and writes the file."""
    path = args.output_file
    filesystem.check_ending("--output_file", path, [".npz", ".jsonl"])
    if path.endswith(".npz") and filesystem.is_remote(path):
        raise ValueError(
            f"--output_file={path} is remote; wanted .jsonl there, or a local "
            "file."
        )
    files = filesystem.expand_in_order(args.input_file)
    filesystem.check_outputs(
        {"--output_file": [path]},
        {"--input_file": files, **models.input_files(args)},
    )
    models.check_are_lines(files)
    with ownership.owning(path):
        embed_files(files, args)


def embed_files(files, args):
    """Writes the vectors of all lines of files."""
    embedder = Embedder(
        models.read_checkpoint(args),
        pooling=args.pooling,
        layer=args.layer,
        max_seq_length=args.max_seq_length,
        tokens_per_batch=args.tokens_per_batch,
    )
    num_lines = count_lines(files)
    lines = (line for path in files for line in tables.read_lines(path))
    is_by_token = args.pooling == "tokens"
    is_npz = args.output_file.endswith(".npz")
    done = progress.Progress("embedding", num_lines, "lines")
    num_cut = 0
    with (writing_npz if is_npz else writing_jsonl)(args.output_file) as add:
        for chunk in split_lines(lines, args.tokens_per_batch):
            rows, num_cut_here = embedder.encode(chunk)
            if not done.amount:
                ids = [i for row, _ in rows for i in row]
                remarks.Remarks().say_unknown(ids, embedder.tokenizer)
            vectors = embedder.compute(rows, done.add)
            add(chunk, rows, vectors, is_by_token)
            num_cut += num_cut_here
        if not done.amount:
            raise ValueError(f"There are no lines in {files[:3]}.")
    done.finish()
    print(
        f"Wrote vectors of {done.amount:,} lines to {args.output_file}; "
        f"{num_cut:,} were truncated to {embedder.max_seq_length} tokens."
    )


def count_lines(files):
    """Returns the number of lines of files, after checking their encoding."""
    if not all(filesystem.is_remote(f) or os.path.isfile(f) for f in files):
        return None  # A pipe can be read only once.
    return sum(1 for path in files for _ in tables.read_lines(path))


def split_lines(lines, tokens_per_batch):
    """Yields chunks: lists of lines of BATCHES_PER_CHUNK batches or more."""
    chunk, size = [], 0
    for line in lines:
        chunk.append(line)
        # Roughly an upper bound of its tokens, with [CLS] and [SEP].
        size += len(line) + 2
        if size >= BATCHES_PER_CHUNK * tokens_per_batch:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


@contextlib.contextmanager
def writing_jsonl(path):
    """Yields a function that writes lines with their vectors, ids and offsets.

    The file gets its name when it is complete.
    """

    def add(lines, rows, vectors, is_by_token):
        for line, row, vector in zip(lines, rows, vectors, strict=True):
            record = {"text": line, "vectors": vector.tolist()}
            if is_by_token:
                record |= {"ids": list(row[0]), "offsets": row[1]}
            text = json.dumps(record, ensure_ascii=False)
            file.write(f"{text}\n".encode())

    with filesystem.writing(path) as file:
        yield add


@contextlib.contextmanager
def writing_npz(path):
    """Like `writing_jsonl`, in the format of numpy.savez.

    An array in that format starts with its number of rows, which is unknown
    until the end. So each array is first written to an unnamed file on the same
    disk.
    """
    folder = os.path.dirname(path) or "."
    files: dict = {}
    headers: dict[str, dict] = {}  # With the number of rows written so far.
    with contextlib.ExitStack() as stack:
        temporary = stack.enter_context(filesystem.replacing(path))

        def add(_lines, rows, vectors, is_by_token):
            for name, array in join(rows, vectors, is_by_token).items():
                if name not in files:
                    file = tempfile.TemporaryFile(dir=folder)
                    files[name] = stack.enter_context(file)
                files[name].write(np.ascontiguousarray(array).data)
                header = np.lib.format.header_data_from_array_1_0(array)
                num_before, *_ = headers.get(name, {"shape": [0]})["shape"]
                header["shape"] = (num_before + len(array), *array.shape[1:])
                headers[name] = header

        yield add
        with zipfile.ZipFile(temporary, "w") as archive:
            for name, file in files.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as out:
                    np.lib.format.write_array_header_1_0(out, headers[name])
                    file.seek(0)
                    shutil.copyfileobj(file, out)


def join(rows, vectors, is_by_token):
    """Returns the arrays of some lines for an .npz, by name."""
    if not is_by_token:
        return {"vectors": np.stack(vectors)}  # [N, H]
    offsets = [pair for _, offsets in rows for pair in offsets]
    return {
        "vectors": np.concatenate(vectors),  # [all tokens, H]
        "lengths": np.array([len(ids) for ids, _ in rows]),  # [N]
        "ids": np.array([i for ids, _ in rows for i in ids], np.int32),
        "offsets": np.array(offsets, np.int32).reshape(-1, 2),
    }

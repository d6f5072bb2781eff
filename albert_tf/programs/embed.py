"""Computes vectors of lines of text, a chunk of lines at a time."""

import contextlib
import json
import os
import shutil
import tempfile
import zipfile

import numpy as np
import tensorflow as tf

from albert_tf import filesystem, ownership, progress
from albert_tf.data import batches, examples, tables
from albert_tf.model import modeling
from albert_tf.programs import models
from albert_tf.training import evaluation

# Lines are sorted by length within a chunk: larger chunks need more memory,
# smaller ones more padding.
BATCHES_PER_CHUNK = 16


def run(args):
    """Embeds all lines and writes the file."""
    path = args.output_file
    if not path.endswith((".npz", ".jsonl")):
        raise ValueError(f"--output_file={path} must end in .npz or .jsonl.")
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
    with ownership.owning(path):
        embed_files(files, args)


def embed_files(files, args):
    """Writes the vectors of all lines of files."""
    unused = [] if args.pooling == "pooled" else ["bert/pooler"]
    model, tokenizer = models.build(args, modeling.AlbertEncoder, unused)
    config = model.config
    max_seq_length = config.choose_length(args.max_seq_length)
    num_layers = config.num_hidden_layers * config.inner_group_num
    if not -num_layers <= args.layer < num_layers:
        raise ValueError(
            f"--layer={args.layer}, but the model has {num_layers} layers; "
            f"wanted {-num_layers} to {num_layers - 1}."
        )
    num_lines = count_lines(files)
    lines = (line for path in files for line in tables.read_lines(path))
    embed = build_function(model, args.pooling, args.layer)
    is_by_token = args.pooling == "tokens"
    is_npz = args.output_file.endswith(".npz")
    done = progress.Progress("embedding", num_lines, "lines")
    num_cut = 0
    with (writing_npz if is_npz else writing_jsonl)(args.output_file) as add:
        for chunk in split_lines(lines, args.tokens_per_batch):
            rows, num_cut_here = encode(
                tokenizer, chunk, max_seq_length, is_by_token
            )
            ids = [ids for ids, _ in rows]
            limits = max_seq_length, args.tokens_per_batch
            vectors = compute(embed, tokenizer, ids, *limits, done.add)
            if is_by_token:
                pairs = zip(vectors, ids, strict=True)
                vectors = [vector[: len(row)] for vector, row in pairs]
            add(chunk, rows, vectors, is_by_token)
            num_cut += num_cut_here
        if not done.amount:
            raise ValueError(f"There are no lines in {files[:3]}.")
    done.finish()
    print(
        f"Wrote vectors of {done.amount:,} lines to {args.output_file}; "
        f"{num_cut:,} were truncated to {max_seq_length} tokens."
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


def encode(tokenizer, lines, max_seq_length, has_offsets):
    """Encodes lines, without [CLS] and [SEP].

    Returns:
      A pair of ids and offsets (None without `has_offsets`) for each line; and
      the number of truncated lines.
    """
    if has_offsets:
        rows = [tokenizer.encode_with_offsets(line) for line in lines]
    else:
        rows = examples.encode_texts(tokenizer, lines)
        rows = [(ids, None) for ids in rows]
    limit = max_seq_length - 2
    num_cut = sum(len(ids) > limit for ids, _ in rows)
    rows = [(ids[:limit], offsets and offsets[:limit]) for ids, offsets in rows]
    return rows, num_cut


def build_function(model, pooling="mean", layer=-1):
    """Returns a compiled function from ids and mask [B, T] to vectors.

    These are [B, H] if `pooling` is "pooled" or "mean", and [B, T - 1, H],
    without [CLS], for "tokens". They are read from a `layer`, but for "pooled".
    The weights must not change any more.
    """
    ints = tf.TensorSpec([None, None], tf.int32)
    config = model.config
    last = config.num_hidden_layers * config.inner_group_num - 1
    is_last = pooling == "pooled" or layer in (-1, last)

    @tf.function(input_signature=[ints, ints])
    def embed(ids, mask):
        outputs = model(ids, mask)
        if pooling == "pooled":
            return outputs["pooled_output"]
        tokens = outputs["sequence_output"]  # [B, T, H]
        if not is_last:
            tokens = outputs["all_encoder_layers"][layer]
        return average(tokens, mask) if pooling == "mean" else tokens[:, 1:]

    strategy = tf.distribute.get_strategy()
    if is_last:  # The only layer that is returned inside.
        with evaluation.holding_weights(strategy, model):
            embed.get_concrete_function()
    return embed


def compute(
    embed, tokenizer, rows, max_length, tokens_per_batch=4096, count=None
):
    """Computes the vectors of lines.

    `rows` are N lists of ids, without [CLS] and [SEP]. A line has at most
    `max_length` tokens and a batch `tokens_per_batch`, padding included.
    `count` is called with the number of lines of each batch.

    Returns:
      N arrays: for each line, its row of the result of `embed`.
    """
    pairs: list = [
        ([tokenizer.cls_id, *ids, tokenizer.sep_id], []) for ids in rows
    ]
    encoded = examples.Examples(*examples.join_pairs(pairs), {})
    plan = batches.plan_pass(
        encoded,
        max_length,
        tokens_per_batch,
        # Few shapes: TensorFlow keeps half a megabyte for each.
        is_static=True,
        tokens_per_shape=0,
    )
    vectors = [None] * len(rows)
    parts = np.split(plan.order, np.cumsum(plan.sizes)[:-1])
    for length, indices in zip(plan.lengths, parts, strict=True):
        real = indices[indices < len(rows)]  # Without rows of padding.
        features = examples.pad_examples(encoded, real, int(length))
        more = [(0, len(indices) - len(real)), (0, 0)]
        names = "input_ids", "input_mask"
        ids, mask = (np.pad(features[name], more) for name in names)
        values = embed(ids, mask).numpy()[: len(real)]
        for i, vector in zip(real, values, strict=True):
            vectors[i] = vector
        if count:
            count(len(real))
    return vectors


def average(tokens, mask):
    """Returns the mean of each line's tokens, without [CLS] and [SEP].

    Tokens are [B, T, H]. The mask [B, T] is 1 for a token, 0 for padding. The
    result is [B, H] float32, 0 for a line without tokens.
    """
    is_last = tf.cumsum(mask, axis=1, reverse=True) == 1
    is_inner = (mask > 0) & ~is_last
    weights = tf.cast(is_inner[:, 1:], tf.float32)  # [B, T - 1]
    sums = tf.einsum("bth,bt->bh", tf.cast(tokens[:, 1:], tf.float32), weights)
    counts = tf.reduce_sum(weights, axis=1, keepdims=True)  # [B, 1]
    return sums / tf.maximum(counts, 1)


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

    with (
        filesystem.replacing(path) as name,
        filesystem.open_file(name, "wb") as file,
    ):
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

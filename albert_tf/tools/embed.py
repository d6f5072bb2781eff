"""Turns lines of text into vectors.

    python -m albert_tf.tools.embed --init_checkpoint=out \
        --input_file=lines.txt --output_file=vectors.npz

A .npz holds `vectors` [N, H], one for each line, blank ones too; with
--pooling=tokens it holds `vectors` [all tokens, H], `lengths` [N], `ids` and
`offsets` [all tokens, 2], which are characters of the line (start, end). A
.jsonl holds one object a line with the same names.
"""

import dataclasses
import json
from typing import Literal

import numpy as np
import tensorflow as tf

from albert_tf import filesystem, flags, ownership, progress
from albert_tf.data import examples, tables
from albert_tf.model import modeling
from albert_tf.model.config import MAX_LAYERS
from albert_tf.tools import model_flags

# Lengths that batches are padded to, so that few are compiled.
BUCKETS = (16, 32, 64, 128, 256, 512)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EmbedFlags(model_flags.ModelFlags):
    """A model, lines, and what a vector of them is."""

    input_file: str = flags.flag(
        required=True, help="Text files, a text a line: globs, with commas."
    )
    output_file: str = flags.flag(
        required=True, help="File to write: .npz or .jsonl."
    )
    pooling: Literal["pooled", "mean", "tokens"] = flags.flag(
        "mean",
        "pooled: the model's own vector; mean: of all tokens, without [CLS] "
        "and [SEP]; tokens: one for each of these.",
    )
    layer: int = flags.flag(
        -1,
        "Layer to take tokens of, from 0; -1 is the last. Not for pooled.",
        at_least=-MAX_LAYERS,
        below=MAX_LAYERS,
    )
    max_seq_length: int = flags.flag(
        512,
        "Tokens a line, with [CLS] and [SEP]; longer ones are cut.",
        at_least=3,
    )
    batch_size: int = flags.flag(
        32,
        "Lines computed at a time.",
        at_least=1,
        at_most=flags.MAX_BATCH_SIZE,
    )


def run(args):
    """Reads, computes, and writes the file whole."""
    if not args.output_file.endswith((".npz", ".jsonl")):
        raise ValueError(
            f"--output_file={args.output_file} must end in .npz or .jsonl."
        )
    files = filesystem.expand_files(args.input_file)
    filesystem.check_outputs(
        {"--output_file": [args.output_file]},
        {"--input_file": files, **model_flags.input_files(args)},
    )
    with ownership.owning(args.output_file):
        embed_files(files, args)


def embed_files(files, args):
    """Writes the vectors of the lines of files."""
    model, tokenizer = model_flags.build(args, modeling.AlbertEncoder)
    config = model.config
    if args.max_seq_length > config.max_position_embeddings:
        raise ValueError(
            f"--max_seq_length={args.max_seq_length} must be from 3 to "
            f"{config.max_position_embeddings}, the model's positions."
        )
    num_layers = config.num_hidden_layers * config.inner_group_num
    if not -num_layers <= args.layer < num_layers:
        raise ValueError(
            f"--layer={args.layer}, but the model has {num_layers}, from 0."
        )
    lines = [line for path in files for line in read_lines(path)]
    if not lines:
        raise ValueError(f"There is no line in {files[:3]}.")
    rows, num_cut = encode(tokenizer, lines, args.max_seq_length)
    vectors = compute(model, tokenizer, [ids for ids, _ in rows], args)
    write(args.output_file, lines, rows, vectors, args.pooling == "tokens")
    print(
        f"Wrote vectors of {len(lines):,} lines to {args.output_file}; "
        f"{num_cut:,} were cut to {args.max_seq_length} tokens."
    )


def read_lines(path):
    """The lines of a text file, without their ends."""
    text = tables.read_text(path)
    # Not splitlines: U+2028 and others may stand within a text.
    lines = text.replace("\r\n", "\n").split("\n")
    return lines if lines[-1] else lines[:-1]


def encode(tokenizer, lines, max_seq_length):
    """Returns each line's ids and their offsets; and how many were cut."""
    limit = max_seq_length - 2
    rows = [tokenizer.encode_with_offsets(line) for line in lines]
    num_cut = sum(len(ids) > limit for ids, _ in rows)
    return [(ids[:limit], offsets[:limit]) for ids, offsets in rows], num_cut


def compute(model, tokenizer, rows, args):
    """Returns the vectors of rows of ids: for each [H], or [its tokens, H]."""

    @tf.function(reduce_retracing=False)
    def outputs(ids, mask):
        named = model(ids, mask)
        if args.pooling == "pooled":
            return named["pooled_output"]
        return named["all_encoder_layers"][args.layer]

    encoded = examples.Examples(
        *examples.join_pairs(
            ([tokenizer.cls_id, *ids, tokenizer.sep_id], []) for ids in rows
        ),
        {},
    )
    vectors = [None] * len(rows)
    batch_size = min(args.batch_size, len(rows))
    # Lines of one length together; the results go back to their places.
    order = np.argsort(encoded.lengths, kind="stable")
    done = progress.Progress("embedding", len(rows), "lines")
    for start in range(0, len(order), batch_size):
        batch = order[start : start + batch_size]
        longest = encoded.lengths[batch[-1]]
        bucket = next((b for b in BUCKETS if b >= longest), longest)
        num_tokens = min(bucket, args.max_seq_length)
        # The last batch is filled with its own lines, to be no other shape.
        features = examples.pad_examples(
            encoded, np.resize(batch, batch_size), num_tokens
        )
        values = outputs(
            tf.constant(features["input_ids"]),
            tf.constant(features["input_mask"]),
        ).numpy()
        for row, i in enumerate(batch):
            vectors[i] = pool(values[row], len(rows[i]), args.pooling)
        done.add(len(batch))
    done.finish()
    return vectors


def pool(output, num_tokens, pooling):
    """One line's vector or vectors, of what the model gave for it."""
    if pooling == "pooled":
        return output  # [H]
    tokens = output[1 : 1 + num_tokens]  # [T, H]
    if pooling == "tokens":
        return tokens
    # A line without tokens has a vector of zeros.
    return tokens.sum(axis=0) / max(num_tokens, 1)


def write(path, lines, rows, vectors, is_by_token):
    """Writes vectors, and for tokens also ids and offsets."""
    if path.endswith(".jsonl"):
        records = []
        for line, (ids, offsets), vector in zip(
            lines, rows, vectors, strict=True
        ):
            record = {"text": line, "vectors": vector.tolist()}
            if is_by_token:
                record |= {"ids": list(ids), "offsets": offsets}
            records.append(json.dumps(record, ensure_ascii=False) + "\n")
        filesystem.write_file(path, "".join(records))
        return
    if is_by_token:
        arrays: dict = {
            "vectors": np.concatenate(vectors),
            "lengths": np.array([len(ids) for ids, _ in rows]),
            "ids": np.array([i for ids, _ in rows for i in ids], np.int32),
            "offsets": np.array(
                [pair for _, offsets in rows for pair in offsets], np.int32
            ).reshape(-1, 2),
        }
    else:
        arrays = {"vectors": np.stack(vectors)}
    with filesystem.replacing(path) as name, open(name, "wb") as file:
        np.savez(file, **arrays)


def main():
    """The command."""
    flags.launch(run, EmbedFlags)


if __name__ == "__main__":
    main()

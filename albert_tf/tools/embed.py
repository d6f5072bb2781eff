"""Turns lines of text into vectors."""

import json

import numpy as np
import tensorflow as tf

from albert_tf import filesystem, ownership, progress
from albert_tf.data import batches, examples, tables
from albert_tf.model import modeling
from albert_tf.tools import models


def run(args):
    """Reads, computes, and writes the file whole."""
    if not args.output_file.endswith((".npz", ".jsonl")):
        raise ValueError(
            f"--output_file={args.output_file} must end in .npz or .jsonl."
        )
    files = filesystem.expand_files(args.input_file)
    filesystem.check_outputs(
        {"--output_file": [args.output_file]},
        {"--input_file": files, **models.input_files(args)},
    )
    with ownership.owning(args.output_file):
        embed_files(files, args)


def embed_files(files, args):
    """Writes the vectors of the lines of files."""
    model, tokenizer = models.build(args, modeling.AlbertEncoder)
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
    is_by_token = args.pooling == "tokens"
    rows, num_cut = encode(tokenizer, lines, args.max_seq_length, is_by_token)
    vectors = compute(
        model,
        tokenizer,
        [ids for ids, _ in rows],
        pooling=args.pooling,
        layer=args.layer,
        tokens_per_batch=args.tokens_per_batch,
    )
    write(args.output_file, lines, rows, vectors, is_by_token)
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


def encode(tokenizer, lines, max_seq_length, has_offsets):
    """Encodes lines, without [CLS] and [SEP].

    Returns:
      A pair for each line, its ids and, where they are asked for, the offsets
      of these, else None; and how many lines were cut.
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


def compute(
    model, tokenizer, rows, *, pooling="mean", layer=-1, tokens_per_batch=4096
):
    """Computes the vectors of lines.

    Args:
      model: an AlbertEncoder.
      tokenizer: its Tokenizer.
      rows: N lists of ids, without [CLS] and [SEP].
      pooling: "pooled", "mean" or "tokens".
      layer: whose output is taken, unless it is pooled.
      tokens_per_batch: tokens computed at a time, with padding.

    Returns:
      N arrays: [H], or [its tokens, H] where pooling is "tokens".
    """
    encoded = examples.Examples(
        *examples.join_pairs(
            ([tokenizer.cls_id, *ids, tokenizer.sep_id], []) for ids in rows
        ),
        {},
    )
    plan = batches.plan_pass(
        encoded, model.config.max_position_embeddings, tokens_per_batch
    )
    (dataset,) = batches.build_pass(encoded, plan)

    @tf.function(input_signature=[dataset.element_spec])
    def embed(features):
        mask = features["input_mask"]
        outputs = model(features["input_ids"], mask)
        if pooling == "pooled":
            return outputs["pooled_output"]
        tokens = outputs["all_encoder_layers"][layer]  # [B, T, H]
        return average(tokens, mask) if pooling == "mean" else tokens

    vectors = [None] * len(rows)
    done = progress.Progress("embedding", len(rows), "lines")
    for features in dataset:
        index = features["example_index"].numpy()
        for i, values in zip(index, embed(features).numpy(), strict=True):
            if pooling == "tokens":
                values = values[1 : 1 + len(rows[i])]
            vectors[i] = values
        done.add(len(index))
    done.finish()
    return vectors


def average(tokens, mask):
    """The mean of each line's tokens, without [CLS] and [SEP].

    Args:
      tokens: [B, T, H].
      mask: [B, T], 1 for a token.

    Returns:
      [B, H] float32; 0 for a line without tokens.
    """
    # Of n tokens in all, those from 1 to n - 2.
    is_last = tf.cumsum(mask, axis=1, reverse=True) == 1
    is_inner = (mask > 0) & ~is_last
    weights = tf.cast(is_inner[:, 1:], tf.float32)  # [B, T - 1]
    sums = tf.einsum("bth,bt->bh", tf.cast(tokens[:, 1:], tf.float32), weights)
    counts = tf.reduce_sum(weights, axis=1, keepdims=True)  # [B, 1]
    return sums / tf.maximum(counts, 1)


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

"""Reads pretraining records as batches, in a resumable order.

Parsing renames the release's misnamed feature `next_sentence_labels` to
`sentence_order_labels`.

Shapes: B batch, T tokens, P predictions.
"""

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from albert_tf import filesystem
from albert_tf.data import batches
from albert_tf.data.pretraining import dynamic, records, rules

# Files read in parallel, and records taken from each in turn. Constants,
# because the order of training examples depends on them.
NUM_OPEN_FILES = 8
RECORDS_PER_TURN = 16
# Batches parsed in parallel, and prefetched for the devices.
NUM_PARSED = 4


@dataclasses.dataclass(frozen=True, kw_only=True)
class Order:
    """The order of training records, which repeat forever.

    Epoch e visits every record once, in an order that depends only on (`seed`,
    e); batches may span epochs.

    Args:
      seed: seed of the order, and of dynamic masks.
      start: number of examples already consumed. The stream resumes after
        them, as if it had never been interrupted.
      num_records: total number of records; required if `start` > 0.
      shuffle_buffer: number of records in the shuffle buffer.

    Example:
      >>> from albert_tf.data.pretraining.reading import Order
      >>> Order(seed=1, start=64, num_records=1000).start
      64
    """

    seed: int = 0
    start: int = 0
    num_records: int | None = None
    shuffle_buffer: int = rules.SHUFFLE_BUFFER


def build_dataset(
    files: Sequence[str],
    features: dict,
    batch_size: int,
    order: Order | None = None,
    *,
    limits: dict | None = None,
    masker: dynamic.Masker | None = None,
    num_usable: dict[str, int] | None = None,
    context: tf.distribute.InputContext | None = None,
) -> tf.data.Dataset:
    """Builds a dataset of parsed records in batches of static shapes.

    Evaluation is one pass in file order; its last batch is padded with zeros,
    and `example_weight` marks the real rows.

    Args:
      files: names of TFRecord files.
      features: dict of name -> (shape, dtype name).
      batch_size: examples per global batch.
      order: the `Order` of training; None for evaluation.
      limits: dict of name -> (least, most), for features with known limits;
        a value outside is an error while reading.
      masker: masks dynamic records by the seed of `order`, 0 without it, and
        their index in the stream; None for static records.
      num_usable: dict of damaged file -> number of records to read of it.
      context: the part of each global batch to parse, in training: that of one
        host, in batches for its replicas in turn. None for whole batches.

    Returns:
      A `tf.data.Dataset` of dicts: the features with integers as int32 (for
      dynamic records, the static features that `masker` makes of them),
      `next_sentence_labels` [B, 1] as `sentence_order_labels` [B], and for
      evaluation `example_weight` [B], 1 for a real row and 0 for padding. B is
      `batch_size`, or the batch size of a replica if there is a context.

    Raises:
      ValueError: if there is nothing to read, or `order` has a start without
        `num_records`.
    """
    if not any(filesystem.size(file) for file in files):
        raise ValueError(f"There is no record in {list(files)[:3]}.")
    read_file = functools.partial(_read_file, num_usable=num_usable or {})
    is_training, seed, start = False, 0, 0
    if order:
        is_training, seed, start = True, order.seed, order.start
        dataset = _repeat_forever(files, read_file, order)
    else:
        dataset = tf.data.Dataset.from_tensor_slices(list(files)).flat_map(
            read_file
        )
    # Each record keeps its index, however batches are made of them.
    dataset = dataset.enumerate(start)
    # Every host reads all records in one order, so that the global batch is
    # the same for any number of hosts; each parses its own part alone.
    context = context or tf.distribute.InputContext()
    num_hosts = context.num_input_pipelines
    host_batch_size = batch_size // num_hosts
    dataset = dataset.batch(host_batch_size, drop_remainder=is_training)
    dataset = dataset.shard(num_hosts, context.input_pipeline_id)
    dataset = dataset.map(
        functools.partial(
            _parse_batch,
            features=features,
            limits=limits or {},
            mask=masker and functools.partial(masker.mask, seed=seed),
            batch_size=host_batch_size,
            is_training=is_training,
        ),
        num_parallel_calls=NUM_PARSED,
    )
    dataset = dataset.with_options(batches.build_options()).prefetch(NUM_PARSED)
    if (num_replicas := context.num_replicas_in_sync) == num_hosts:
        return dataset
    return dataset.rebatch(batch_size // num_replicas, drop_remainder=True)


def _read_file(file, num_usable):
    """Returns the serialized records of a file up to its first damaged one."""
    dataset = tf.data.TFRecordDataset(file)
    for damaged, count in num_usable.items():
        is_it = tf.equal(file, damaged)
        dataset = dataset.take(
            tf.where(is_it, tf.constant(count, tf.int64), -1)
        )
    return dataset


def _repeat_forever(files, read_file, order):
    """Repeats serialized records forever, from the start of an `Order` on."""
    if order.start and not order.num_records:
        raise ValueError(
            f"To resume after {order.start} examples, the number of records "
            f"must be known; got {order.num_records}."
        )
    first_epoch, num_skipped = divmod(order.start, order.num_records or 1)

    def read_epoch(epoch):
        # Sets the seed of this function's graph only; otherwise the order
        # would also depend on tf.random.set_seed. Shuffling with a tensor as
        # seed, the epoch, fails if this seed is 0.
        tf.compat.v1.set_random_seed(1 + order.seed % (2**31 - 2))
        shuffled = tf.random.experimental.stateless_shuffle(
            tf.constant(files), seed=[tf.constant(order.seed, tf.int64), epoch]
        )
        dataset = tf.data.Dataset.from_tensor_slices(shuffled)
        dataset = dataset.interleave(
            read_file,
            cycle_length=NUM_OPEN_FILES,
            block_length=RECORDS_PER_TURN,
            num_parallel_calls=NUM_OPEN_FILES,
            deterministic=True,
        )
        dataset = dataset.shuffle(
            order.shuffle_buffer, seed=epoch, reshuffle_each_iteration=False
        )
        is_first = tf.cast(epoch == first_epoch, tf.int64)
        return dataset.skip(is_first * num_skipped)

    epochs = tf.data.Dataset.range(first_epoch, np.iinfo(np.int64).max)
    return epochs.flat_map(read_epoch)


def _parse_batch(
    indices, serialized, *, features, limits, mask, batch_size, is_training
):
    """Parses, casts, masks, renames and, for evaluation, pads one batch."""
    batch = records.parse(serialized, features, limits)
    if mask:
        batch = mask(batch, indices)
    if "next_sentence_labels" in batch:
        labels = batch.pop("next_sentence_labels")  # [B, 1]
        batch["sentence_order_labels"] = labels[:, 0]  # [B]
    if is_training:
        return batch
    batch["example_weight"] = tf.ones_like(serialized, tf.float32)
    padding = batch_size - tf.size(serialized)
    return {
        name: tf.ensure_shape(
            tf.pad(values, [[0, padding]] + [[0, 0]] * (len(values.shape) - 1)),
            [batch_size, *values.shape[1:]],
        )
        for name, values in batch.items()
    }

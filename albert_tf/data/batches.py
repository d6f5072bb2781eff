"""Which examples make up a batch, and the batches as tensors.

Sequences of similar length stand in a batch together and are padded to the
same few lengths, the buckets, so that every shape is static and little of it
is padding. A plan is made in NumPy from lengths alone; TensorFlow only looks
up what it says.

Shapes: N examples, C sequences an example, B batch, T tokens.
"""

from typing import NamedTuple

import numpy as np

from albert_tf.data.examples import Examples

# A plan is held in memory: 4 bytes for each of its examples.
MAX_PLANNED = 1 << 28
MAX_EPOCHS = 100_000
# How often a batch may repeat its data; small ones may always.
MAX_REPEATS = 100
SMALL_BATCH = 1024


class Plan(NamedTuple):
    """Which examples make up each batch, and what they are padded to.

    Attributes:
      lengths: [steps] tokens of each sequence of a batch after padding.
      indices: [steps, B] int32 of examples; N is a row of padding.
    """

    lengths: np.ndarray
    indices: np.ndarray


def parse_bucket_lengths(text: str, max_seq_length: int) -> list[int]:
    """Returns the lengths that sequences are padded to, in order.

    Args:
      text: numbers with commas between them; those from max_seq_length on are
        left out. Empty: everything is padded to max_seq_length.
      max_seq_length: tokens of the longest sequence; always the last bucket.

    Raises:
      ValueError: if something else than positive numbers stands there.
    """
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not all(word.isdecimal() and int(word) > 0 for word in words):
        raise ValueError(
            f"--bucket_lengths={text!r}: wanted numbers of tokens such as "
            "64,128,256."
        )
    shorter = {int(word) for word in words if int(word) < max_seq_length}
    return sorted(shorter) + [max_seq_length]


def longest_sequences(examples: Examples) -> np.ndarray:
    """Returns [N]: the tokens of each example's longest sequence."""
    return examples.lengths.reshape(len(examples), -1).max(axis=1)


def choose_buckets(examples: Examples, bucket_lengths: list[int]) -> np.ndarray:
    """Returns [N] integers: the shortest bucket that holds each example.

    Raises:
      ValueError: if an example is longer than all of them.
    """
    lengths = longest_sequences(examples)
    if lengths.max(initial=0) > bucket_lengths[-1]:
        raise ValueError(
            f"A sequence has {lengths.max()} tokens; the longest bucket has "
            f"{bucket_lengths[-1]}."
        )
    return np.searchsorted(bucket_lengths, lengths)


def check_plan(num_examples: int, batch_size: int, num_steps: int = 1) -> None:
    """Raises ValueError if a plan of so many examples would be absurd."""
    if not num_examples:
        raise ValueError("There are no examples.")
    if batch_size > max(SMALL_BATCH, MAX_REPEATS * num_examples):
        raise ValueError(
            f"A batch of {batch_size:,} would repeat the {num_examples:,} "
            f"examples there are more than {MAX_REPEATS} times. Give a smaller "
            "batch."
        )
    num_planned = num_steps * batch_size
    num_epochs = num_planned / num_examples
    if num_planned > MAX_PLANNED or num_epochs > MAX_EPOCHS:
        raise ValueError(
            f"{num_steps:,} steps of {batch_size:,} examples are "
            f"{num_planned:,} examples, {num_epochs:,.0f} epochs of the "
            f"{num_examples:,} there are; at most {MAX_PLANNED:,} examples and "
            f"{MAX_EPOCHS:,} epochs can be planned. Give fewer steps."
        )


def plan_training(
    examples: Examples,
    bucket_lengths: list[int],
    batch_size: int,
    num_steps: int,
    seed: int,
) -> Plan:
    """Plans training: every example once an epoch, batches of one bucket.

    The plan depends on nothing but the arguments, and a longer one begins
    like a shorter one, so a training that goes on takes up its plan in the
    middle. What is left of an epoch's buckets is joined, the longest first;
    fewer than `batch_size` examples wait for the next epoch.

    `bucket_lengths` are as from `parse_bucket_lengths`, `batch_size` counts the
    examples in all replicas, and `seed` decides the order.

    Raises:
      ValueError: if there are no examples, or the plan would be absurdly
        large.
    """
    check_plan(len(examples), batch_size, num_steps)
    buckets = choose_buckets(examples, bucket_lengths)
    plans = [Plan(np.zeros(0, np.int32), np.zeros((0, batch_size), np.int32))]
    waiting = np.zeros(0, np.int32)
    num_planned = epoch = 0
    while num_planned < num_steps:
        rng = np.random.default_rng([seed, epoch])
        order = rng.permutation(len(examples)).astype(np.int32)
        plan, waiting = _plan_epoch(
            np.concatenate([waiting, order]), buckets, batch_size, rng
        )
        lengths = np.array(bucket_lengths, np.int32)[plan.lengths]
        plans.append(plan._replace(lengths=lengths))
        num_planned += len(plan.lengths)
        epoch += 1
    lengths, indices = map(np.concatenate, zip(*plans, strict=True))
    return Plan(lengths[:num_steps], indices[:num_steps])


def _plan_epoch(order, buckets, batch_size, rng):
    """Batches of some examples, in random order, and what is left of them."""
    batches, rest = [], []
    for bucket in np.unique(buckets):
        members = order[buckets[order] == bucket]
        num_full = len(members) // batch_size * batch_size
        batches.append(members[:num_full].reshape(-1, batch_size))
        rest.append(members[num_full:])
    left = np.concatenate(rest)  # By bucket, the longest at the end.
    num_left = len(left) % batch_size
    batches.append(left[num_left:].reshape(-1, batch_size))
    indices = rng.permutation(np.concatenate(batches))
    return Plan(buckets[indices].max(axis=1), indices), left[:num_left]


def plan_pass(
    examples: Examples, bucket_lengths: list[int], batch_size: int
) -> Plan:
    """Plans one pass over all examples, the longest first.

    Batches that are not full have rows of padding.

    Raises:
      ValueError: if there are no examples, or by far fewer than in a batch.
    """
    check_plan(len(examples), batch_size)
    buckets = choose_buckets(examples, bucket_lengths)
    lengths, batches = [], []
    for bucket in np.unique(buckets)[::-1]:
        members = np.flatnonzero(buckets == bucket).astype(np.int32)
        num_missing = -len(members) % batch_size
        filled = np.pad(
            members, (0, num_missing), constant_values=len(examples)
        )
        batches.append(filled.reshape(-1, batch_size))
        lengths += [bucket_lengths[bucket]] * len(batches[-1])
    return Plan(np.array(lengths, np.int32), np.concatenate(batches))


def build_datasets(examples: Examples, plan: Plan) -> dict:
    """Builds one dataset a bucket, whose batches come in the plan's order.

    Returns:
      Dict of length T -> `tf.data.Dataset` of dicts of static shapes:
      `input_ids`, `input_mask`, `segment_ids` [B, T] int32, or [B, C, T] where
      C > 1; `examples.arrays`; `example_index` [B] int32; and
      `example_weight` [B], 0 for a row of padding.
    """
    import tensorflow as tf

    with tf.device("CPU:0"):
        tensors = _look_up_tables(examples)
    options = tf.data.Options()
    options.deterministic = True
    return {
        int(length): tf.data.Dataset.from_tensor_slices(
            plan.indices[plan.lengths == length]
        )
        .map(
            lambda index, length=int(length): _look_up(
                tensors, index, length, examples.num_choices
            ),
            num_parallel_calls=tf.data.AUTOTUNE,
        )
        .with_options(options)
        .prefetch(2)
        for length in np.unique(plan.lengths)
    }


def _look_up_tables(examples):
    """Tensors of all sequences and arrays, with one empty example more."""
    import tensorflow as tf

    def padded(values, num_more):
        return np.pad(values, [(0, num_more)] + [(0, 0)] * (values.ndim - 1))

    lengths, first = (
        tf.constant(padded(values, examples.num_choices), tf.int32)
        for values in (examples.lengths, examples.first_lengths)
    )
    arrays = {
        name: tf.constant(padded(values, 1))
        for name, values in examples.arrays.items()
    }
    ids = tf.RaggedTensor.from_row_lengths(
        tf.constant(examples.ids, tf.int32), lengths
    )
    return ids, lengths, first, arrays


def _look_up(tables, index, length, num_choices):
    """The batch of some examples, [B] int32, padded to a length."""
    import tensorflow as tf

    ids, lengths, first, arrays = tables
    batch_size = index.shape[0]
    rows = index[:, tf.newaxis] * num_choices + tf.range(num_choices)
    rows = tf.reshape(rows, [batch_size * num_choices])  # [B * C]
    positions = tf.range(length)
    is_token = positions < tf.gather(lengths, rows)[:, tf.newaxis]
    is_second = positions >= tf.gather(first, rows)[:, tf.newaxis]
    shape = [batch_size, num_choices, length]
    if num_choices == 1:
        shape = [batch_size, length]
    batch = {
        "input_ids": tf.gather(ids, rows).to_tensor(
            shape=[batch_size * num_choices, length]
        ),
        "input_mask": tf.cast(is_token, tf.int32),
        "segment_ids": tf.cast(is_token & is_second, tf.int32),
    }
    batch = {name: tf.reshape(x, shape) for name, x in batch.items()}
    num_examples = ids.nrows(tf.int32) // num_choices - 1
    return {
        **batch,
        **{name: tf.gather(x, index) for name, x in arrays.items()},
        "example_index": index,
        "example_weight": tf.cast(index < num_examples, tf.float32),
    }

"""Which examples make up a batch, and the batches as tensors.

Sequences of similar length stand in a batch together, so that little of it is
padding. For training they are padded to the same few lengths, the buckets, so
that every shape is static; a pass for predictions chooses its lengths from the
data. A plan is made in NumPy from lengths alone; TensorFlow only looks up what
it says.

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
# What a batch of a pass costs beside its tokens, as so many of them: from 60 on
# a CPU to some thousands on a GPU.
TOKENS_PER_CALL = 128
# Static shapes of a pass are of lengths that are multiples of it.
LENGTH_STEP = 8
# What it costs to compile a static shape for a TPU, some 20 s, in tokens.
TOKENS_PER_SHAPE = 1 << 22


class Plan(NamedTuple):
    """Which examples make up each batch, and what they are padded to.

    Attributes:
      lengths: [steps] tokens of each sequence of a batch after padding.
      indices: [steps, B] int32 of examples; N is a row of padding.
    """

    lengths: np.ndarray
    indices: np.ndarray


class Pass(NamedTuple):
    """Which examples make up each batch of one pass, the longest first.

    Attributes:
      lengths: [steps] tokens of each sequence of a batch after padding.
      sizes: [steps] examples of each batch, with rows of padding.
      order: [sum of sizes] int32, the examples of one batch after another; N
        is a row of padding.
      is_static: whether batches of one length are of one size.
    """

    lengths: np.ndarray
    sizes: np.ndarray
    order: np.ndarray
    is_static: bool


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
    examples: Examples,
    max_length: int,
    tokens_per_batch: int,
    *,
    batch_size: int | None = None,
    min_length: int = 1,
    num_replicas: int = 1,
    is_static: bool = False,
    tokens_per_shape: int | None = None,
) -> Pass:
    """Plans one pass over all examples, the longest first.

    Each batch begins with what is longest of the rest and is padded to it. It
    ends where more examples would be more padding than a batch of their own
    costs, or where it is full.

    Args:
      examples: N of them.
      max_length: tokens that no sequence has more of, nor is padded to.
      tokens_per_batch: most tokens of one replica, with padding. An example
        that has more is a batch of its own.
      batch_size: examples in all replicas together, however long; None for as
        many as the tokens allow.
      min_length: what sequences are padded to at least.
      num_replicas: whose batches are of one size.
      is_static: whether each shape has to be compiled: there are few lengths
        then, chosen from those of the examples, and one size for each. Only
        the last batch has rows of padding.
      tokens_per_shape: what a static shape costs, in tokens; 0 allows every
        multiple of LENGTH_STEP. None is TOKENS_PER_SHAPE.

    Raises:
      ValueError: if there are no examples, or by far fewer than in a batch,
        or one is too long.
    """
    check_plan(len(examples), batch_size or 1)
    longest = longest_sequences(examples)  # [N]
    if longest.max() > max_length:
        raise ValueError(
            f"A sequence has {longest.max()} tokens; wanted at most "
            f"{max_length}."
        )
    longest = np.maximum(longest, min(min_length, max_length))
    order = np.argsort(-longest, kind="stable").astype(np.int32)
    longest = longest[order]
    padded = longest
    if is_static:
        rounded = -(-longest // LENGTH_STEP) * LENGTH_STEP
        rounded = np.minimum(rounded, max_length)
        if tokens_per_shape is None:
            tokens_per_shape = TOKENS_PER_SHAPE
        chosen = choose_lengths(rounded, tokens_per_shape)
        padded = chosen[np.searchsorted(chosen, rounded)]
    most = -(-len(examples) // num_replicas)
    lengths, sizes, start = [], [], 0
    while start < len(order):
        tokens = int(padded[start]) * examples.num_choices
        size = min(max(1, tokens_per_batch // tokens), most) * num_replicas
        if batch_size:
            size = batch_size
        elif not is_static:
            size = _cut_batch(longest[start : start + size])
            size = -(-size // num_replicas) * num_replicas
        lengths.append(padded[start])
        sizes.append(size)
        start += size
    num_missing = start - len(order)
    if not is_static:
        sizes[-1] -= num_missing // num_replicas * num_replicas
        num_missing %= num_replicas
    order = np.pad(order, (0, num_missing), constant_values=len(examples))
    return Pass(
        np.array(lengths, np.int32), np.array(sizes, np.int32), order, is_static
    )


def _cut_batch(lengths):
    """How many of the sequences, the longest first, make the best batch."""
    useful = np.cumsum(lengths, dtype=np.int64)
    padded = lengths[0] * np.arange(1, len(lengths) + 1)
    return int(np.argmax(useful / (padded + TOKENS_PER_CALL))) + 1


def choose_lengths(lengths: np.ndarray, tokens_per_length: int) -> np.ndarray:
    """Chooses what sequences are padded to, for the least work in all.

    Args:
      lengths: [N] of the sequences.
      tokens_per_length: what each length that is chosen costs, in tokens.

    Returns:
      Some of the lengths, ascending; the last is the longest.
    """
    possible, counts = np.unique(lengths, return_counts=True)  # [K]
    num_up_to = np.concatenate([[0], np.cumsum(counts)])  # [K + 1]
    # Of the i shortest lengths: the least cost, and the choice that has it.
    costs, choices = [0], [list[int]()]
    for i, length in enumerate(possible, start=1):
        padded = (num_up_to[i] - num_up_to[:i]) * length  # [i]
        totals = np.array(costs) + padded + tokens_per_length
        best = int(totals.argmin())
        costs.append(totals[best])
        choices.append([*choices[best], length])
    return np.array(choices[-1])


def build_datasets(examples: Examples, plan: Plan) -> dict:
    """Builds one dataset a bucket, whose batches come in the plan's order.

    Returns:
      Dict of length T -> `tf.data.Dataset` of dicts of static shapes:
      `input_ids`, `input_mask`, `segment_ids` [B, T] int32, or [B, C, T] where
      C > 1; `examples.arrays`; `example_index` [B] int32; and
      `example_weight` [B], 0 for a row of padding.
    """
    tables = _look_up_tables(examples)
    return {
        int(length): _build_dataset(
            tables, length, plan.indices[plan.lengths == length]
        )
        for length in np.unique(plan.lengths)
    }


def build_pass(examples: Examples, plan: Pass) -> list:
    """Builds the datasets of a pass: batches as from `build_datasets`.

    There is one dataset for each shape where shapes are static, the longest
    first, and otherwise one for all, whose B and T are unknown.
    """
    import tensorflow as tf

    tables = _look_up_tables(examples)
    starts = np.cumsum(plan.sizes, dtype=np.int32) - plan.sizes
    if plan.is_static:
        datasets = []
        for length in np.unique(plan.lengths)[::-1]:
            where = plan.lengths == length
            rows = starts[where, None] + np.arange(plan.sizes[where][0])
            datasets.append(_build_dataset(tables, length, plan.order[rows]))
        return datasets
    with tf.device("CPU:0"):
        order = tf.constant(plan.order)
    return [
        _map(
            (starts, plan.sizes, plan.lengths),
            lambda start, size, length: _look_up(
                tables, order[start : start + size], length
            ),
        )
    ]


def _build_dataset(tables, length, indices):
    """The dataset of batches of one length; their indices are [steps, B]."""
    return _map(indices, lambda index: _look_up(tables, index, int(length)))


def _map(slices, look_up):
    import tensorflow as tf

    dataset = tf.data.Dataset.from_tensor_slices(slices).map(look_up)
    return dataset.with_options(build_options()).prefetch(2)


def build_options():
    """Returns the options of our datasets: in order, without autotuning.

    The thread that tunes sleeps 10 ms, 20, 40 and so on, and an iterator that
    ends may wait for it: a pass of six seconds took ten.
    """
    import tensorflow as tf

    options = tf.data.Options()
    options.deterministic = True
    options.autotune.enabled = False
    return options


class _Tables(NamedTuple):
    """Tensors of all sequences and arrays, with one empty example more.

    Attributes:
      ids: [S] of all sequences end to end.
      starts, lengths, first_lengths: [R], see `Examples`.
      arrays: dict of name -> [N + 1, ...].
      num_choices: sequences an example, C.
    """

    ids: object
    starts: object
    lengths: object
    first_lengths: object
    arrays: dict
    num_choices: int


def _look_up_tables(examples):
    import tensorflow as tf

    def padded(values, num_more):
        return np.pad(values, [(0, num_more)] + [(0, 0)] * (values.ndim - 1))

    def constant(values):
        return tf.constant(padded(values, examples.num_choices), tf.int32)

    with tf.device("CPU:0"):
        return _Tables(
            tf.constant(padded(examples.ids, 1), tf.int32),
            constant(examples.starts),
            constant(examples.lengths),
            constant(examples.first_lengths),
            {
                name: tf.constant(padded(values, 1))
                for name, values in examples.arrays.items()
            },
            examples.num_choices,
        )


def _look_up(tables, index, length):
    """The batch of some examples, [B] int32, padded to a length."""
    import tensorflow as tf

    num_choices = tables.num_choices
    rows = index[:, tf.newaxis] * num_choices + tf.range(num_choices)  # [B, C]
    if num_choices == 1:
        rows = index  # [B]
    positions = tf.range(length)
    starts, lengths, first_lengths = (
        tf.gather(values, rows)[..., tf.newaxis]  # [B, (C,) 1]
        for values in (tables.starts, tables.lengths, tables.first_lengths)
    )
    is_token = positions < lengths  # [B, (C,) T]
    where = tf.where(is_token, starts + positions, 0)
    ids = tf.where(is_token, tf.gather(tables.ids, where), 0)
    num_examples = tables.lengths.shape[0] // num_choices - 1
    return {
        "input_ids": ids,
        "input_mask": tf.cast(is_token, tf.int32),
        "segment_ids": tf.cast(
            is_token & (positions >= first_lengths), tf.int32
        ),
        **{name: tf.gather(x, index) for name, x in tables.arrays.items()},
        "example_index": index,
        "example_weight": tf.cast(index < num_examples, tf.float32),
    }

"""Plans which examples form each batch, and builds the batches as tensors.

Sequences of similar length are batched together to reduce padding: an epoch of
MRPC takes 17 s instead of 28 s with 128 tokens. Training pads them to a few
fixed lengths, the buckets, so that all shapes are static; a pass for
predictions chooses its lengths from the data. A plan is computed in NumPy from
lengths alone; TensorFlow only gathers the planned examples.

Shapes: N examples, C sequences per example, B batch, T tokens.
"""

import functools
from typing import NamedTuple

import numpy as np

from albert_tf import filesystem
from albert_tf.data.examples import NO_LABEL, Examples, pad_examples

# A plan is kept in memory: 4 bytes per example.
MAX_PLANNED = 1 << 28
MAX_EPOCHS = 100_000
# A batch may repeat the data this many times; small batches are not limited.
MAX_REPEATS = 100
SMALL_BATCH = 1024
# Fixed cost of a batch in a pass, in tokens: from 60 on a CPU to some
# thousands on a GPU.
TOKENS_PER_CALL = 128
# Static shapes of a pass have lengths that are multiples of this.
LENGTH_STEP = 8
# Cost of compiling a static shape for a TPU, about 20 s, in tokens.
TOKENS_PER_SHAPE = 1 << 22


class Plan(NamedTuple):
    """The examples and the padded length of each batch.

    Attributes:
      lengths: [steps] tokens per sequence of each batch, after padding.
      indices: [steps, B] int32 indices of examples; N is a row of padding.
    """

    lengths: np.ndarray
    indices: np.ndarray


class Pass(NamedTuple):
    """The batches of one pass over all examples, longest first.

    Attributes:
      lengths: [steps] tokens per sequence of each batch, after padding.
      sizes: [steps] examples in each batch, including rows of padding.
      order: [sum of sizes] int32, indices of the examples of all batches in
        order; N is a row of padding.
      is_static: whether batches of the same length have the same size.
    """

    lengths: np.ndarray
    sizes: np.ndarray
    order: np.ndarray
    is_static: bool


def parse_bucket_lengths(text: str, max_seq_length: int) -> list[int]:
    """Returns the bucket lengths, in ascending order.

    `text` has comma-separated numbers, of which those of `max_seq_length` or
    more are ignored: that is always the last bucket.

    Raises:
      ValueError: if `text` contains anything but positive numbers.
    """
    words = filesystem.split_list(text)
    if not all(word.isdecimal() and int(word) > 0 for word in words):
        raise ValueError(
            f"bucket_lengths={text!r}: wanted numbers of tokens, such as "
            "64,128,256."
        )
    shorter = {int(word) for word in words if int(word) < max_seq_length}
    return sorted(shorter) + [max_seq_length]


def longest_sequences(examples: Examples) -> np.ndarray:
    """Returns the length of each example's longest sequence, [N]."""
    return examples.lengths.reshape(len(examples), -1).max(axis=1)


def check_plan(num_examples: int, batch_size: int, num_steps: int = 1) -> None:
    """Raises ValueError if there are no examples or the plan is too large."""
    if not num_examples:
        raise ValueError("There are no examples.")
    if batch_size > max(SMALL_BATCH, MAX_REPEATS * num_examples):
        raise ValueError(
            f"A batch of {batch_size:,} would repeat the {num_examples:,} "
            f"available examples more than {MAX_REPEATS} times. Choose a "
            "smaller batch."
        )
    num_planned = num_steps * batch_size
    num_epochs = num_planned / num_examples
    if num_planned > MAX_PLANNED or num_epochs > MAX_EPOCHS:
        raise ValueError(
            f"{num_steps:,} steps of {batch_size:,} examples are "
            f"{num_planned:,} examples, or {num_epochs:,.0f} epochs of the "
            f"{num_examples:,} available examples; wanted at most "
            f"{MAX_PLANNED:,} examples and {MAX_EPOCHS:,} epochs. Choose fewer "
            "steps."
        )


def plan_training(
    examples: Examples,
    bucket_lengths: list[int],
    batch_size: int,
    num_steps: int,
    seed: int,
) -> Plan:
    """Plans training: each example once per epoch, one bucket per batch.

    The plan depends only on the arguments, and a shorter plan is a prefix of a
    longer one, so a resumed training continues in the middle of its plan. The
    remaining examples of an epoch's buckets are batched together, longest
    first; fewer than `batch_size` examples are carried to the next epoch.

    Raises:
      ValueError: if there are no examples, the plan is too large, or an
        example is longer than the longest bucket.
    """
    check_plan(len(examples), batch_size, num_steps)
    longest = longest_sequences(examples)
    if longest.max() > bucket_lengths[-1]:
        raise ValueError(
            f"A sequence has {longest.max()} tokens; the longest bucket has "
            f"{bucket_lengths[-1]}."
        )
    buckets = np.searchsorted(bucket_lengths, longest)  # [N]
    plans = [Plan(np.zeros(0, np.int32), np.zeros((0, batch_size), np.int32))]
    remainder = np.zeros(0, np.int32)
    num_planned = epoch = 0
    while num_planned < num_steps:
        rng = np.random.default_rng([seed, epoch])
        order = rng.permutation(len(examples)).astype(np.int32)
        plan, remainder = _plan_epoch(
            np.concatenate([remainder, order]), buckets, batch_size, rng
        )
        lengths = np.array(bucket_lengths, np.int32)[plan.lengths]
        plans.append(plan._replace(lengths=lengths))
        num_planned += len(plan.lengths)
        epoch += 1
    lengths, indices = map(np.concatenate, zip(*plans, strict=True))
    return Plan(lengths[:num_steps], indices[:num_steps])


def _plan_epoch(order, buckets, batch_size, rng):
    """Plans batches in random order; returns them and the remainder."""
    batches, rest = [], []
    for bucket in np.unique(buckets):
        members = order[buckets[order] == bucket]
        num_full = len(members) // batch_size * batch_size
        batches.append(members[:num_full].reshape(-1, batch_size))
        rest.append(members[num_full:])
    mixed = np.concatenate(rest)  # Ascending by bucket.
    num_left = len(mixed) % batch_size
    batches.append(mixed[num_left:].reshape(-1, batch_size))
    indices = rng.permutation(np.concatenate(batches))
    return Plan(buckets[indices].max(axis=1), indices), mixed[:num_left]


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
    """Plans one pass over all examples, longest first.

    Each batch starts with the longest remaining example and is padded to its
    length. It ends when the padding of further examples would cost more than
    another batch, or when it is full.

    Args:
      examples: the `Examples`.
      max_length: maximum number of tokens per sequence, padding included.
      tokens_per_batch: maximum number of tokens per replica, padding included.
        A longer example forms its own batch.
      batch_size: examples per batch in all replicas together, of any length;
        None for as many as `tokens_per_batch` allows.
      min_length: minimum length of sequences after padding.
      num_replicas: number of replicas; all get batches of the same size.
      is_static: whether each shape is compiled. Then only a few lengths are
        used, chosen from those of the examples, with one batch size each; only
        the last batch has rows of padding.
      tokens_per_shape: what a static shape costs, in tokens; 0 allows every
        multiple of LENGTH_STEP. None is TOKENS_PER_SHAPE.

    Raises:
      ValueError: if there are no examples, far fewer than in a batch, or one
        is too long.
    """
    # Without static shapes, no batch is larger than what is left.
    check_plan(len(examples), batch_size if batch_size and is_static else 1)
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
        if tokens_per_shape is None:
            tokens_per_shape = TOKENS_PER_SHAPE
        padded = _pad_to_shapes(longest, max_length, tokens_per_shape)
    max_size = -(-len(examples) // num_replicas)
    lengths, sizes, start = [], [], 0
    while start < len(order):
        tokens = int(padded[start]) * examples.num_choices
        size = min(max(1, tokens_per_batch // tokens), max_size) * num_replicas
        if batch_size:
            size = batch_size
        elif not is_static:
            size = _best_batch_size(longest[start : start + size])
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


def _pad_to_shapes(longest, max_length, tokens_per_shape):
    """Returns the padded lengths, of which there are only a few; [N]."""
    rounded = -(-longest // LENGTH_STEP) * LENGTH_STEP
    rounded = np.minimum(rounded, max_length)
    chosen = choose_lengths(rounded, tokens_per_shape)
    return chosen[np.searchsorted(chosen, rounded)]


def _best_batch_size(lengths):
    """Returns the batch size with the largest share of useful tokens."""
    useful = np.cumsum(lengths, dtype=np.int64)
    padded = lengths[0] * np.arange(1, len(lengths) + 1)
    return int(np.argmax(useful / (padded + TOKENS_PER_CALL))) + 1


def choose_lengths(lengths: np.ndarray, tokens_per_length: int) -> np.ndarray:
    """Chooses the padded lengths that minimize the total cost.

    Each chosen length costs `tokens_per_length`, in tokens.

    Returns:
      A subset of the lengths [N], ascending; the last is the maximum.
    """
    possible, counts = np.unique(lengths, return_counts=True)  # [K]
    num_up_to = np.concatenate([[0], np.cumsum(counts)])  # [K + 1]
    # For the i shortest lengths: the minimal cost, and the choice achieving it.
    costs, choices = [0], [list[int]()]
    for i, length in enumerate(possible, start=1):
        padded = (num_up_to[i] - num_up_to[:i]) * length  # [i]
        totals = np.array(costs) + padded + tokens_per_length
        best = int(totals.argmin())
        costs.append(totals[best])
        choices.append([*choices[best], length])
    return np.array(choices[-1])


def build_datasets(examples: Examples, plan: Plan) -> dict:
    """Builds one dataset per bucket, with batches in the plan's order.

    Returns:
      Dict of length T -> `tf.data.Dataset` of dicts of static shapes:
      `input_ids`, `input_mask`, `segment_ids` and `examples.token_labels`
      [B, T] int32, or [B, C, T] if C > 1; `examples.arrays`; `example_index`
      [B] int32; and `example_weight` [B], 0 for a row of padding.
    """
    look_up = _build_look_up(examples)
    return {
        int(length): _build_dataset(
            look_up, length, plan.indices[plan.lengths == length]
        )
        for length in np.unique(plan.lengths)
    }


def build_pass(examples: Examples, plan: Pass) -> list:
    """Builds the datasets of a pass; batches are as in `build_datasets`.

    With static shapes, there is one dataset per shape, longest first;
    otherwise there is one dataset with unknown B and T.
    """
    import tensorflow as tf

    look_up = _build_look_up(examples)
    starts = np.cumsum(plan.sizes, dtype=np.int32) - plan.sizes
    if plan.is_static:
        datasets = []
        for length in np.unique(plan.lengths)[::-1]:
            where = plan.lengths == length
            rows = starts[where, None] + np.arange(plan.sizes[where][0])
            datasets.append(_build_dataset(look_up, length, plan.order[rows]))
        return datasets
    with tf.device("CPU:0"):
        order = tf.constant(plan.order)

    def look_up_slice(start, size, length):
        return look_up(order[start : start + size], length)

    return [_map((starts, plan.sizes, plan.lengths), look_up_slice)]


class HostBatches:
    """The batches of a pass for one device, made when they are needed.

    They are those of `build_pass` for one replica, but no functions are traced
    for them.
    """

    def __init__(self, examples: Examples, plan: Pass):
        self.examples, self.plan = examples, plan

    def __iter__(self):
        import tensorflow as tf

        parts = np.split(self.plan.order, np.cumsum(self.plan.sizes)[:-1])
        for length, index in zip(self.plan.lengths, parts, strict=True):
            is_real = index < len(self.examples)
            batch = pad_examples(self.examples, index[is_real], int(length))
            for name, values in batch.items():
                is_label = name in self.examples.token_labels
                more = [(0, (~is_real).sum())] + [(0, 0)] * (values.ndim - 1)
                batch[name] = np.pad(
                    values, more, constant_values=NO_LABEL if is_label else 0
                )
            batch["example_index"] = index
            batch["example_weight"] = is_real.astype(np.float32)
            yield {name: tf.constant(x) for name, x in batch.items()}

    @functools.cached_property
    def element_spec(self):
        """Dict of each feature's tf.TensorSpec, with unknown B and T."""
        import tensorflow as tf

        examples = self.examples
        rows = (
            [None]
            if examples.num_choices == 1
            else [None, examples.num_choices]
        )
        tokens = tf.TensorSpec([*rows, None], tf.int32)
        names = "input_ids", "input_mask", "segment_ids"
        return {
            **dict.fromkeys((*names, *examples.token_labels), tokens),
            **{
                name: tf.TensorSpec([None, *values.shape[1:]], values.dtype)
                for name, values in examples.arrays.items()
            },
            "example_index": tf.TensorSpec([None], tf.int32),
            "example_weight": tf.TensorSpec([None], tf.float32),
        }


def _build_dataset(look_up, length, indices):
    """Builds a dataset of batches of one length; indices are [steps, B]."""
    return _map(indices, lambda index: look_up(index, int(length)))


def _map(slices, look_up):
    import tensorflow as tf

    dataset = tf.data.Dataset.from_tensor_slices(slices).map(look_up)
    return dataset.with_options(build_options()).prefetch(2)


def build_options():
    """Returns the options of all datasets: deterministic, no autotuning.

    The autotuning thread sleeps for 10 ms, 20, 40 and so on, and an iterator
    may wait for it at its end: a pass of six seconds took ten.
    """
    import tensorflow as tf

    options = tf.data.Options()
    options.deterministic = True
    options.autotune.enabled = False
    return options


def _build_look_up(examples):
    """Returns a function that gathers a batch, padded to a length.

    It takes the indices of examples, [B] int32, and the length. Index N is a
    row of padding, an example without tokens.
    """
    import tensorflow as tf

    num_choices, num_examples = examples.num_choices, len(examples)

    def constant(values, num_rows, dtype=None):
        padding = [(0, num_rows)] + [(0, 0)] * (values.ndim - 1)
        return tf.constant(np.pad(values, padding), dtype)

    # tf.data runs on the CPU; a GPU's memory is for the model.
    with tf.device("CPU:0"):
        all_ids = constant(examples.ids, 1, tf.int32)
        # 5 million examples have more tokens than int32 counts.
        sequences = [constant(examples.starts, num_choices, tf.int64)]
        for column in (examples.lengths, examples.first_lengths):
            sequences.append(constant(column, num_choices, tf.int32))
        arrays = {name: constant(x, 1) for name, x in examples.arrays.items()}
        labels = {
            name: constant(x, 1, tf.int32)
            for name, x in examples.token_labels.items()
        }

    def look_up(index, length):
        rows = index[:, tf.newaxis] * num_choices + tf.range(num_choices)
        if num_choices == 1:
            rows = index  # [B]; otherwise [B, C]
        starts, lengths, first_lengths = (
            tf.gather(values, rows)[..., tf.newaxis]  # [B, (C,) 1]
            for values in sequences
        )
        positions = tf.range(length)
        is_token = positions < lengths  # [B, (C,) T]
        where = starts + tf.cast(positions, tf.int64)
        where = tf.where(is_token, where, 0)
        segment_ids = is_token & (positions >= first_lengths)
        return {
            "input_ids": tf.where(is_token, tf.gather(all_ids, where), 0),
            "input_mask": tf.cast(is_token, tf.int32),
            "segment_ids": tf.cast(segment_ids, tf.int32),
            **{
                name: tf.where(is_token, tf.gather(x, where), NO_LABEL)
                for name, x in labels.items()
            },
            **{name: tf.gather(x, index) for name, x in arrays.items()},
            "example_index": index,
            "example_weight": tf.cast(index < num_examples, tf.float32),
        }

    return look_up

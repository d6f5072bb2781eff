"""Parses and validates requests inside the graphs of exported models.

Without validation, many invalid requests would silently get an answer: an
unknown segment has a vector of zeros, a mask of 7 amplifies tokens, and inputs
of one column are broadcast. A client's mistake must be an error instead.

Shapes: B batch, T tokens, P masked positions.
"""

import tensorflow as tf

FEATURES = ("input_ids", "input_mask", "segment_ids")
POSITIONS = "masked_lm_positions"
# Input names of signatures that use the names of the features.
OWN_NAMES = {name: name for name in FEATURES}


def check_features(inputs, names, config, max_seq_length):
    """Returns the features of a request, or fails with an error message.

    A graph compiled by XLA or converted to LiteRT has no assertions.

    `inputs` are [B, T] integers, and positions [B, P]. `names` maps their names
    to FEATURES and optionally POSITIONS.

    Returns:
      Dict of FEATURES and optionally POSITIONS, int32. An empty batch without
      tokens gets one column, which the model needs.
    """
    ids = next(inputs[n] for n, ours in names.items() if ours == FEATURES[0])
    num_rows, num_tokens = tf.unstack(tf.shape(ids))
    tops = {
        "input_ids": (config.vocab_size - 1, "vocabulary ids"),
        "input_mask": (1, "mask values"),
        "segment_ids": (config.type_vocab_size - 1, "segment ids"),
        POSITIONS: (num_tokens - 1, "positions in the sequence"),
    }
    checks = check_lengths(num_tokens, max_seq_length, num_rows)
    for name, ours in names.items():
        checks.append(check_shape(name, inputs[name], ids, ours != POSITIONS))
        checks.append(check_range(name, inputs[name], *tops[ours]))
    features = {}
    with tf.control_dependencies(checks):
        for name, ours in names.items():
            num_columns = tf.maximum(num_tokens, 1)
            if ours == POSITIONS:
                num_columns = tf.shape(inputs[name])[1]
            values = fit(inputs[name], num_rows, num_columns)
            features[ours] = tf.cast(values, tf.int32)
    return features


def fit(values, num_rows, num_columns):
    """Returns values padded with 0, or truncated, to a shape.

    Among values that pass the checks, only an empty batch without tokens
    changes. Otherwise TensorFlow, which infers shapes before it computes, would
    fail first, with an error that names only its own operations.
    """
    wanted = tf.stack([num_rows, num_columns])
    missing = tf.maximum(wanted - tf.shape(values), 0)
    padded = tf.pad(values, tf.stack([[0, 0], missing], axis=1))
    return padded[:num_rows, :num_columns]


def check_shape(name, values, ids, has_tokens):
    """Returns an operation that fails if an input's shape is not that of ids.

    Rows are always compared, columns only if `has_tokens`.
    """
    shape, wanted = tf.shape(values), tf.shape(ids)
    sizes = slice(None if has_tokens else 1)
    return tf.debugging.Assert(
        tf.reduce_all(shape[sizes] == wanted[sizes]),
        [f"{name} has the shape", shape, "but ids have the shape", wanted],
    )


def check_range(name, values, top, meaning):
    """Returns an operation that fails for integers outside [0, top]."""
    top = tf.cast(top, values.dtype)
    # Any rank is accepted here: `check_shape` reports a wrong one.
    flat = tf.reshape(values, [-1])
    least, largest = tf.reduce_min(flat), tf.reduce_max(flat)
    return tf.debugging.Assert(
        (least >= 0) & (largest <= top),
        [
            f"{name} has values from",
            least,
            "to",
            largest,
            f"but {meaning} must be from 0 to",
            top,
        ],
    )


def check_texts(**texts):
    """Returns texts, [B] strings each, or fails if their numbers differ."""
    (first, rows), *others = [(n, tf.size(x)) for n, x in texts.items()]
    checks = [
        tf.debugging.Assert(
            count == rows,
            [f"{name} has", count, "rows, wanted as many as", first, rows],
        )
        for name, count in others
    ]
    with tf.control_dependencies(checks):
        return [tf.identity(x) for x in texts.values()]


def check_lengths(num_tokens, max_seq_length, num_rows=1):
    """Returns operations that fail for sequences with no or too many tokens.

    `num_tokens` is a scalar or [B]. Without any of `num_rows`, there may be
    none.
    """
    return [
        tf.debugging.Assert(
            tf.reduce_all(num_tokens > 0) | (num_rows < 1),
            ["A sequence has no tokens. Is input_ids absent?"],
        ),
        tf.debugging.Assert(
            tf.reduce_all(num_tokens <= max_seq_length),
            [
                "A sequence is longer than the max_seq_length of the export:",
                tf.reduce_max(num_tokens),
                "tokens, wanted at most",
                max_seq_length,
            ],
        ),
    ]


def parse_examples(examples, max_seq_length):
    """Parses serialized `tf.train.Example`s, [B] strings, inside a graph.

    Returns:
      A dict of FEATURES, [B, T] int64 each, padded with 0 to the longest.
    """
    spec = {name: tf.io.RaggedFeature(tf.int64) for name in FEATURES}
    ragged = tf.io.parse_example(examples, spec)  # [B, (T)] each
    num_tokens = ragged["input_ids"].row_lengths()  # [B]
    checks = check_lengths(num_tokens, max_seq_length)
    # An absent mask would be padded with 0 and so hide every token.
    checks += [
        tf.debugging.assert_equal(
            ragged[name].row_lengths(),
            num_tokens,
            f"Every example needs a list {name} as long as its input_ids. Is "
            "it absent or misnamed?",
        )
        for name in FEATURES[1:]
    ]
    with tf.control_dependencies(checks):
        return {name: values.to_tensor() for name, values in ragged.items()}

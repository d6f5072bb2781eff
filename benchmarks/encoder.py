"""Times ALBERT-base against transformers and KerasHub.

  pip install -e '.[peers]'
  python -m benchmarks.encoder

Every candidate runs the whole encoder (embeddings, 12 layers, pooler) on the
same ids without padding, with dropout 0. A training step is a forward pass
with the mean square of the last layer as loss, the backward pass, and AdamW on
float32 weights. The candidates take turns in one process, so that a slow phase
of the machine affects all of them; the median round is reported. In bfloat16,
transformers uses bfloat16 weights for inference and autocast for training, as
is usual; only `bf16 weights` trains with bfloat16 weights. For inference, our
encoder is traced as by `albert embed`, with kernels as constants; `as it is` is
the encoder in a plain tf.function. GFLOP/s count the
matrix multiplications of the layers, three times for training.
"""

import contextlib
import functools
import os
import statistics
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import keras
import numpy as np
import tensorflow as tf
from absl import app, flags

from albert_tf.model import modeling
from albert_tf.model.config import AlbertConfig
from albert_tf.training import evaluation, optimization
from benchmarks import peers

FLAGS = flags.FLAGS
flags.DEFINE_integer("rounds", 7, "Number of rounds; the median is reported.")
flags.DEFINE_float("seconds", 1.0, "Seconds per candidate and round.")
flags.DEFINE_list("only", [], "Words that a row's name must contain.")
flags.DEFINE_bool("peers", True, "Whether to run other libraries.")

CONFIG = AlbertConfig(
    vocab_size=30000,
    hidden_size=768,
    num_hidden_layers=12,
    num_attention_heads=12,
    intermediate_size=3072,
)
# Kind, batch size, tokens.
ROWS = [
    ("inference", 8, 128),
    ("training", 8, 128),
    ("inference", 4, 512),
    ("training", 2, 512),
]
LEARNING_RATE = 1e-5


def num_flops(kind, batch_size, num_tokens):
    """Returns the FLOPs of the layers' matrix multiplications."""
    h, f = CONFIG.hidden_size, CONFIG.intermediate_size
    per_token = 2 * (4 * h * h + 2 * h * f + 2 * num_tokens * h)
    layers = CONFIG.num_hidden_layers * batch_size * num_tokens * per_token
    return layers * (3 if kind == "training" else 1)


def build_ours(kind, ids, dtype, is_held=True):
    """Returns a function that runs albert_tf once."""
    policy = {"float32": "float32", "bfloat16": "mixed_bfloat16"}[dtype]
    encoder = modeling.AlbertEncoder(CONFIG, dtype=policy)
    mask, segments = tf.ones_like(ids), tf.zeros_like(ids)
    if kind == "inference":

        @tf.function
        def infer(ids, mask, segments):
            outputs = encoder(ids, mask, segments)
            return outputs["sequence_output"], outputs["pooled_output"]

        strategy = tf.distribute.get_strategy()
        with contextlib.ExitStack() as stack:
            if is_held:
                stack.enter_context(
                    evaluation.holding_weights(strategy, encoder)
                )
            infer(ids, mask, segments)
        return lambda: infer(ids, mask, segments)[1].numpy()
    weights = {n: w.value for n, w in modeling.named_weights(encoder).items()}
    optimizer = optimization.build_optimizer(
        "adamw", weights, lambda step: LEARNING_RATE
    )

    @tf.function
    def train(ids, mask, segments):
        with tf.GradientTape() as tape:
            outputs = encoder(ids, mask, segments, training=True)
            x = tf.cast(outputs["sequence_output"], tf.float32)
            loss = tf.reduce_mean(tf.square(x))
        optimizer.apply(tape.gradient(loss, weights))
        return loss

    return lambda: train(ids, mask, segments).numpy()


def build_keras_hub(kind, ids, dtype):
    """Returns a function that runs KerasHub's AlbertBackbone once."""
    model = peers.keras_hub_backbone(CONFIG, dtype)
    features = {
        "token_ids": ids,
        "padding_mask": tf.ones_like(ids),
        "segment_ids": tf.zeros_like(ids),
    }
    if kind == "inference":
        infer = tf.function(lambda f: model(f, training=False))
        return lambda: infer(features)["pooled_output"].numpy()
    optimizer = keras.optimizers.AdamW(LEARNING_RATE, weight_decay=0.01)
    optimizer.build(model.trainable_variables)

    @tf.function
    def train(features):
        with tf.GradientTape() as tape:
            x = model(features, training=True)["sequence_output"]
            loss = tf.reduce_mean(tf.square(tf.cast(x, tf.float32)))
        gradients = tape.gradient(loss, model.trainable_variables)
        pairs = zip(gradients, model.trainable_variables, strict=True)
        optimizer.apply_gradients([p for p in pairs if p[0] is not None])
        return loss

    return lambda: train(features).numpy()


def build_transformers(kind, ids, dtype, bf16_weights=False):
    """Returns a function that runs transformers' AlbertModel once."""
    import torch
    import transformers

    model = transformers.AlbertModel(peers.transformers_config(CONFIG))
    ids = torch.tensor(ids.numpy(), dtype=torch.long)
    mask = torch.ones_like(ids)
    if kind == "inference":
        model.eval()
        if dtype == "bfloat16":
            model.to(torch.bfloat16)

        def infer():
            with torch.inference_mode():
                outputs = model(input_ids=ids, attention_mask=mask)
                return outputs.pooler_output.float().numpy()

        return infer
    model.train()
    if bf16_weights:
        model.to(torch.bfloat16)
    optimizer = torch.optim.AdamW(
        model.parameters(), LEARNING_RATE, weight_decay=0.01
    )
    is_autocast = dtype == "bfloat16" and not bf16_weights

    def train():
        with torch.autocast("cpu", torch.bfloat16, enabled=is_autocast):
            x = model(input_ids=ids, attention_mask=mask).last_hidden_state
        loss = x.float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return train


def candidates(kind, dtype):
    """Returns a dict from each candidate's name to its builder."""
    builders: dict = {"albert_tf": build_ours}
    if kind == "inference":
        builders["albert_tf, as it is"] = functools.partial(
            build_ours, is_held=False
        )
    if FLAGS.peers:
        builders["transformers"] = build_transformers
        builders["KerasHub"] = build_keras_hub
        if kind == "training" and dtype == "bfloat16":
            builders["transformers, bf16 weights"] = functools.partial(
                build_transformers, bf16_weights=True
            )
    return builders


def time_once(run):
    """Returns the mean seconds per call, over about --seconds."""
    count, start = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - start) < FLAGS.seconds:
        run()
        count += 1
    return elapsed / count


def take_turns(runs):
    """Returns the median seconds per call of each function, by name."""
    times: dict = {name: [] for name in runs}
    for run in runs.values():
        run()
        run()
    for _ in range(FLAGS.rounds):
        for name, run in runs.items():
            times[name].append(time_once(run))
    return {name: statistics.median(t) for name, t in times.items()}


def measure(kind, batch_size, num_tokens, dtype):
    """Returns the median seconds per call, by candidate."""
    rng = np.random.default_rng(0)
    shape = (batch_size, num_tokens)
    ids = tf.constant(rng.integers(5, CONFIG.vocab_size, shape), tf.int32)
    return take_turns(
        {
            name: build(kind, ids, dtype)
            for name, build in candidates(kind, dtype).items()
        }
    )


def main(_):
    """Prints a table with a row per candidate and workload."""
    print(
        "| work | candidate | ms | GFLOP/s | speedup of albert_tf |\n"
        "|---|---|---|---|---|"
    )
    for kind, batch_size, num_tokens in ROWS:
        for dtype in ("float32", "bfloat16"):
            work = f"{kind} B{batch_size} T{num_tokens} {dtype}"
            if not all(word in work for word in FLAGS.only):
                continue
            seconds = measure(kind, batch_size, num_tokens, dtype)
            ours = seconds["albert_tf"]
            flops = num_flops(kind, batch_size, num_tokens)
            for name, s in seconds.items():
                print(
                    f"| {work} | {name} | {1000 * s:.1f} | "
                    f"{flops / s / 1e9:.0f} | {s / ours:.2f} |",
                    flush=True,
                )


if __name__ == "__main__":
    app.run(main)

"""Measures how alike the vectors of different tokens are before training.

  python -m benchmarks.initial_cosine
  python -m benchmarks.initial_cosine --config=v2/base --ranges=0.02

For each number of layers and initializer range: the gauge's `token_cosine` of
the encoder with random weights, on 32 sequences of 64 random ids; the mean over
three seeds. Near 1, the last layer says the same of every token.
"""

import argparse
import dataclasses
import statistics

NUM_SEQUENCES, NUM_TOKENS, NUM_PREDICTIONS = 32, 64, 1
SEEDS = 12345, 12346, 12347


def measure(config, seed):
    """Returns the mean cosine of a model with random weights."""
    import keras
    import tensorflow as tf

    from albert_tf.model import modeling
    from albert_tf.training import plateau
    from benchmarks import training_step

    keras.utils.set_random_seed(seed)
    encoder = modeling.AlbertEncoder(config)
    features = training_step.random_features(
        config, NUM_SEQUENCES, NUM_TOKENS, NUM_PREDICTIONS
    )
    names = "input_ids", "input_mask", "segment_ids"
    features = {name: tf.constant(features[name]) for name in names}
    outputs = encoder(*features.values())
    ratio = plateau.cosine_ratio(outputs["sequence_output"], features)
    return float(ratio.total / ratio.weight)


def parse_arguments():
    """Returns the arguments of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--config", default="small")
    parser.add_argument("--layers", default="3,4,6,12,24")
    parser.add_argument("--ranges", default="0.02,0.03,0.05,0.07")
    parser.add_argument("--parameter_sharing", default="all")
    return parser.parse_args()


def main():
    """Prints a table with a row per range and a column per depth."""
    from albert_tf.model import parameters
    from benchmarks import training_step

    args = parse_arguments()
    base = training_step.read_config(args.config)
    depths = [int(x) for x in args.layers.split(",")]
    print(f"| range | {' | '.join(f'{x} layers' for x in depths)} |")
    print("|---" * (1 + len(depths)) + "|")
    for initializer_range in map(float, args.ranges.split(",")):
        row = [str(initializer_range)]
        for depth in depths:
            config = dataclasses.replace(
                base,
                num_hidden_layers=depth,
                initializer_range=initializer_range,
            )
            config = parameters.share(config, args.parameter_sharing)
            values = [measure(config, seed) for seed in SEEDS]
            row.append(f"{statistics.mean(values):.3f}")
        print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()

"""Compares the speed of training with the paper's and with FLOPs.

  python -m benchmarks.paper_speed

Times pretraining steps (LAMB, bfloat16) of BERT and ALBERT, as
`benchmarks.training_step` does: each model in its own process, all take turns,
and the median turn counts. Speedups are relative to BERT-large, as in Table 2
of the paper, which was measured on Cloud TPUs.
"""

import argparse
import os

from albert_tf.analysis import flops, paper
from benchmarks import training_step

REFERENCE = "bert/large"
NAMES = "bert/base", REFERENCE, "v2/base", "v2/large"


def main():
    """Prints a table with a row per model."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--num_tokens", type=int, default=128)
    parser.add_argument("--num_predictions", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4, help="Of a turn.")
    args = parser.parse_args()
    shape = args.batch_size, args.num_tokens, args.num_predictions
    load = os.getloadavg()[0]
    processes = {
        name: training_step.start(
            "step",
            (name, *shape),
            "mixed_bfloat16",
            training_step.ROOT,
            args.seconds,
        )
        for name in NAMES
    }
    seconds = training_step.take_turns(processes, args.rounds)
    print(
        f"B{shape[0]} T{shape[1]} P{shape[2]}, bfloat16, LAMB; load average "
        f"before: {load:.2f}; {args.rounds} turns.\n\n"
        "| model | step, s | sequences/s | GFLOP/s | speedup | by FLOPs | "
        "in the paper |\n|---|---|---|---|---|---|---|"
    )
    counts = {
        name: flops.count_flops(training_step.read_config(name), *shape)
        for name in NAMES
    }
    for name in NAMES:
        model = paper.find_model(training_step.read_config(name))
        assert model, name
        step = seconds[name]
        print(
            f"| {name} | {step:.2f} | {shape[0] / step:.2f} | "
            f"{counts[name] / step / 1e9:.0f} | "
            f"{seconds[REFERENCE] / step:.1f} | "
            f"{counts[REFERENCE] / counts[name]:.1f} | {model.speedup} |"
        )


if __name__ == "__main__":
    main()

"""Compares the weights that different ways to compute the same steps lead to.

  python -m benchmarks.same_update --train_text=text.txt \
    --spm_model_file=30k-clean.model --output_dir=/tmp/same_update

Ten LAMB steps of a small model without dropout, at a global batch of 24: on
one device, on several logical CPUs, in several processes that listen at
127.0.0.1, in parts, and with recomputed layers. The table shows how far the
weights are from those of one device: the largest difference of a weight,
and the norm of the difference of all weights over the norm of the weights.
"""

import argparse
import json
import os
import pathlib
import socket
import subprocess
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
CONFIG = {
    "vocab_size": 30000,
    "embedding_size": 32,
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 256,
    "max_position_embeddings": 64,
}
COMMON = (
    "--train_batch_size=24",
    "--num_train_steps=10",
    "--num_warmup_steps=2",
    "--learning_rate=0.01",
    "--save_checkpoints_steps=10",
)
FLOAT32, BFLOAT16 = "--compute_dtype=float32", "--compute_dtype=bfloat16"
MIRRORED = "--distribution=mirrored"


def in_parts(count):
    """Returns the flag for a batch of so many parts."""
    return f"--gradient_accumulation_steps={count}"


# Name, number of processes, logical CPUs of each, flags. The first row of each
# dtype is what the following ones are compared with.
ROWS = [
    ("one device", 1, 1, [FLOAT32]),
    ("the same again", 1, 1, [FLOAT32]),
    ("2 replicas", 1, 2, [FLOAT32, MIRRORED]),
    ("4 replicas", 1, 4, [FLOAT32, MIRRORED]),
    ("2 processes", 2, 1, [FLOAT32]),
    ("3 processes", 3, 1, [FLOAT32]),
    ("2 parts", 1, 1, [FLOAT32, in_parts(2)]),
    ("4 parts", 1, 1, [FLOAT32, in_parts(4)]),
    ("recomputed", 1, 1, [FLOAT32, "--remat"]),
    (
        "2 processes, 4 parts, recomputed",
        2,
        1,
        [FLOAT32, in_parts(4), "--remat"],
    ),
    ("bfloat16", 1, 1, [BFLOAT16]),
    ("bfloat16, 2 replicas", 1, 2, [BFLOAT16, MIRRORED]),
    ("bfloat16, 2 processes", 2, 1, [BFLOAT16]),
    ("bfloat16, 4 parts", 1, 1, [BFLOAT16, in_parts(4)]),
    ("bfloat16, recomputed", 1, 1, [BFLOAT16, "--remat"]),
]


def parse_arguments():
    """Returns the arguments of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--train_text", required=True)
    parser.add_argument("--spm_model_file", required=True)
    parser.add_argument("--output_dir", type=pathlib.Path, required=True)
    return parser.parse_args()


def serve(num_devices, words):
    """Runs run_pretraining with so many logical CPUs."""
    import tensorflow as tf

    from albert_tf import flags
    from albert_tf.commands import run_pretraining

    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * num_devices,
    )
    return flags.run_command(*run_pretraining.COMMAND, words)


def write_records(args):
    """Writes the config, and records of the text's first lines."""
    args.output_dir.mkdir(parents=True, exist_ok=True)
    (args.output_dir / "config.json").write_text(json.dumps(CONFIG))
    with open(args.train_text, encoding="utf-8") as file:
        lines = [line for line, _ in zip(file, range(5000), strict=False)]
    text = args.output_dir / "text.txt"
    text.write_text("".join(lines), encoding="utf-8")
    subprocess.run(
        [
            sys.executable,
            ROOT / "create_pretraining_data.py",
            f"--input_file={text}",
            f"--output_file={args.output_dir}/text.tfrecord",
            f"--spm_model_file={args.spm_model_file}",
            "--max_seq_length=64",
            "--max_predictions_per_seq=10",
            "--dupe_factor=1",
            "--noprogress",
        ],
        check=True,
        stderr=subprocess.DEVNULL,
    )


def train(folder, number, num_processes, num_devices, words):
    """Trains in one or several processes; returns the last checkpoint."""
    from albert_tf.weights import checkpoints

    output = folder / f"row{number}"
    words = [
        *(*COMMON, *words),
        f"--albert_config_file={folder}/config.json",
        f"--input_file={folder}/text.tfrecord",
        f"--output_dir={output}",
    ]
    servers = [socket.create_server(("", 0)) for _ in range(num_processes)]
    ports = [server.getsockname()[1] for server in servers]
    for server in servers:
        server.close()
    if num_processes > 1:
        words.append("--distribution=multi_worker")
    processes = []
    for index in range(num_processes):
        cluster = {"worker": [f"127.0.0.1:{port}" for port in ports]}
        task = {"type": "worker", "index": index}
        command = [sys.executable, "-m", "benchmarks.same_update", "--serve"]
        with open(f"{output}.{index}.log", "w", encoding="utf-8") as log:
            processes.append(
                subprocess.Popen(
                    [*command, str(num_devices), *words],
                    cwd=ROOT,
                    env={
                        "TF_CPP_MIN_LOG_LEVEL": "3",
                        **os.environ,
                        "TF_CONFIG": json.dumps(
                            {"cluster": cluster, "task": task}
                        ),
                    },
                    stderr=log,
                )
            )
    if any([process.wait() for process in processes]):
        raise RuntimeError(f"It failed, see {output}.*.log.")
    return checkpoints.read_checkpoint(output / "model.ckpt-10")


def main():
    """Prints the table."""
    from albert_tf.weights import checkpoints

    args = parse_arguments()
    write_records(args)
    print("| steps computed | largest difference | relative | equal |")
    print("|---|---|---|---|")
    for number, (name, *row) in enumerate(ROWS):
        values = train(args.output_dir, number, *row)
        weights = sorted(values.keys() - checkpoints.find_slots(values))
        if name in ("one device", "bfloat16"):
            wanted = values
        differences = [values[n] - wanted[n] for n in weights]
        largest = max(np.abs(d).max() for d in differences)
        norms = [
            np.sqrt(sum(np.square(x, dtype=np.float64).sum() for x in arrays))
            for arrays in (differences, [wanted[n] for n in weights])
        ]
        is_equal = all(np.array_equal(values[n], wanted[n]) for n in values)
        print(
            f"| {name} | {largest:.1e} | {norms[0] / norms[1]:.1e} | "
            f"{'yes' if is_equal else 'no'} |",
            flush=True,
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        sys.exit(serve(int(sys.argv[2]), sys.argv[3:]))
    main()

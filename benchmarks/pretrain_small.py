"""Pretrains configs/model/small.json on a text, evaluates it, draws the curves.

  python -m benchmarks.pretrain_small --train_text=novels.txt \
    --heldout_text=novels_valid.txt --spm_model_file=30k-clean.model \
    --output_dir=out

This is the run of docs/results.md: about an hour on two cores. What is there
already is not made again, and a training that was stopped goes on.
"""

import os
import pathlib

from absl import app, flags

from benchmarks.programs import ROOT, run

FLAGS = flags.FLAGS
flags.DEFINE_string("train_text", None, "Text, one sentence a line.")
flags.DEFINE_string("heldout_text", None, "Other documents, likewise.")
flags.DEFINE_string("spm_model_file", None, "SentencePiece model of 30,000.")
flags.DEFINE_string("output_dir", None, "Where records and model go.")
flags.mark_flags_as_required(
    ["train_text", "heldout_text", "spm_model_file", "output_dir"]
)


def main(_):
    """Makes records of both texts, trains, and draws."""
    out = pathlib.Path(FLAGS.output_dir)
    for text, name, dupe_factor in (
        (FLAGS.train_text, "train", 6),
        (FLAGS.heldout_text, "heldout", 1),
    ):
        run(
            str(ROOT / "create_pretraining_data.py"),
            f"--input_file={text}",
            f"--output_file={out}/{name}.tfrecord",
            f"--num_shards={4 if name == 'train' else 1}",
            f"--spm_model_file={FLAGS.spm_model_file}",
            "--max_seq_length=128",
            f"--dupe_factor={dupe_factor}",
            f"--num_workers={os.cpu_count()}",
        )
    run(
        str(ROOT / "run_pretraining.py"),
        f"--flagfile={ROOT}/configs/pretrain/small.flags",
        f"--albert_config_file={ROOT}/configs/model/small.json",
        f"--input_file={out}/train-*.tfrecord",
        "--do_eval",
        f"--eval_input_file={out}/heldout.tfrecord",
        f"--output_dir={out}/model",
    )
    run(
        "-m",
        "albert_tf.tools.plot_metrics",
        f"--metrics_file={out}/model/metrics.jsonl",
        f"--output_file={out}/curves.svg",
    )


if __name__ == "__main__":
    app.run(main)

"""Hashes what a checkout computes: records, a LAMB run, SQuAD's predictions.

  python -m benchmarks.fingerprints --root=CHECKOUT --text=novel.txt \
      --spm_model_file=30k-clean.model --squad=dev-v2.0.json

Two checkouts that print the same lines compute the same, bit for bit, on this
machine. The commands are printed, too.
"""

import argparse
import hashlib
import json
import pathlib
import shlex
import subprocess
import sys
import tempfile

SIZES = {
    "vocab_size": 30000,
    "embedding_size": 16,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 64,
}
COMMANDS = """
create_pretraining_data --input_file={text} --output_file=records/train
 --spm_model_file={spm} --max_seq_length=64 --max_predictions_per_seq=10
 --dupe_factor=2 --random_seed=7 --num_workers=2
run_pretraining --input_file=records/train* --albert_config_file=config.json
 --output_dir=pretrained --train_batch_size=16 --num_train_steps=20
 --num_warmup_steps=5 --learning_rate=0.01 --compute_dtype=float32
run_squad --train_file=questions.json --predict_file=questions.json
 --squad_version=v2 --init_checkpoint=pretrained --spm_model_file={spm}
 --output_dir=squad --do_train --do_predict --train_step=10
 --train_batch_size=8 --max_seq_length=96 --doc_stride=32
 --compute_dtype=float32 --save_checkpoints_steps=1000
"""
RESULTS = (
    "records/train*",
    "pretrained/model.ckpt-20.data-*",
    "squad/model.ckpt-10.data-*",
    "squad/*predictions.json",
    "squad/null_odds.json",
)


def main():
    """Runs the commands; prints a hash of each of their files."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("root", "text", "spm_model_file", "squad"):
        parser.add_argument(f"--{name}", type=pathlib.Path, required=True)
    args = parser.parse_args()
    questions = json.loads(args.squad.read_text(encoding="utf-8"))
    questions["data"] = questions["data"][:1]
    del questions["data"][0]["paragraphs"][6:]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "config.json").write_text(json.dumps(SIZES))
        (folder / "questions.json").write_text(json.dumps(questions))
        text = COMMANDS.format(
            text=args.text.resolve(), spm=args.spm_model_file.resolve()
        )
        for command in text.replace("\n ", " ").strip().splitlines():
            print(f"albert {command}", flush=True)
            subprocess.run(
                [sys.executable, "-m", "albert_tf", *shlex.split(command)],
                cwd=folder,
                env={
                    "PATH": "/usr/bin:/bin",
                    "PYTHONPATH": str(args.root.resolve()),
                    "TF_CPP_MIN_LOG_LEVEL": "3",
                },
                stderr=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                check=True,
            )
        for pattern in RESULTS:
            for path in sorted(folder.glob(pattern)):
                if path.suffix == ".json" and "records" in pattern:
                    continue  # The sidecar has the date.
                digest = hashlib.sha256(path.read_bytes()).hexdigest()
                print(f"{path.relative_to(folder)} {digest[:16]}")


if __name__ == "__main__":
    main()

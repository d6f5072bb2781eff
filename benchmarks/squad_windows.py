"""Times the encoding of SQuAD, beside what the release was measured to take.

python -m benchmarks.squad_windows --predict_file=dev-v1.1.json \
    --spm_model_file=30k-clean.model

The release's time is a recorded one, of other runs on other paragraphs: its
code does not run here. Ours are medians.
"""

import dataclasses
import statistics
import time

from albert_tf import flags
from albert_tf.data import squad, windows
from albert_tf.flags import flag
from albert_tf.text import tokenization


@dataclasses.dataclass(frozen=True, kw_only=True)
class BenchmarkFlags:
    """What is encoded, and how often."""

    predict_file: str = flag(required=True, help="JSON file of SQuAD.")
    spm_model_file: str = flag(required=True, help="SentencePiece model.")
    max_seq_length: int = flag(384, "As in run_squad.py.")
    doc_stride: int = flag(128, "As in run_squad.py.")
    max_query_length: int = flag(64, "As in run_squad.py.")
    release_ms: float = flag(14.0, "The release's milliseconds a question.")
    num_repeats: int = flag(5, "Times that each way is run.")


def run(args):
    """Prints questions a second for training and prediction."""
    tokenizer = tokenization.build_tokenizer(spm_model_file=args.spm_model_file)
    questions = squad.read_squad(args.predict_file)
    settings = windows.WindowSettings(
        args.max_seq_length, args.doc_stride, args.max_query_length
    )
    for is_training in (True, False):
        for num_workers in (1, 2):
            seconds = []
            for _ in range(args.num_repeats):
                began = time.monotonic()
                encoded = windows.encode_squad(
                    questions,
                    tokenizer,
                    settings,
                    is_training=is_training,
                    num_workers=num_workers,
                )
                seconds.append(time.monotonic() - began)
            rate = len(questions.questions) / statistics.median(seconds)
            print(
                f"{'training' if is_training else 'prediction':12}"
                f"{num_workers} workers{rate:10.0f} questions/s"
                f"{rate * args.release_ms / 1000:8.0f}x the release's, "
                f"{len(encoded)} windows"
            )


if __name__ == "__main__":
    flags.launch(run, BenchmarkFlags)

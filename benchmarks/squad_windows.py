r"""Times the encoding of SQuAD against the recorded time of the release.

python -m benchmarks.squad_windows --predict_file=dev-v1.1.json \
    --spm_model_file=30k-clean.model

The release's time was recorded in other runs on other paragraphs, as its code
does not run here. Our times are medians.
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
    """Data, window settings and number of repeats."""

    predict_file: str = flag(required=True, help="SQuAD JSON file.")
    spm_model_file: str = flag(required=True, help="SentencePiece model.")
    max_seq_length: int = flag(384, "As in run_squad.py.")
    doc_stride: int = flag(128, "As in run_squad.py.")
    max_query_length: int = flag(64, "As in run_squad.py.")
    release_ms: float = flag(14.0, "The release's time per question, in ms.")
    num_repeats: int = flag(5, "Number of runs; the median is reported.")


def run(args):
    """Prints questions per second for training and prediction."""
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

r"""Pretrains configs/model/small.json; evaluates and plots.

  python -m benchmarks.pretrain_small --recipe=hour --train_text=novels.txt \
    --heldout_text=novels_valid.txt --spm_model_file=30k-clean.model \
    --output_dir=out

"hour" takes an hour of two cores, "night" two and a half. Rerun the
same command to resume: finished work is skipped.
"""

import dataclasses
from typing import Literal

from albert_tf import flags
from albert_tf.flags import flag
from benchmarks import programs, studies

RECORDS = studies.RECORDS["hour"]["train"]
HELD_OUT = RECORDS | studies.RECORDS["hour"]["held_out"]
# Chosen before the first training run.
MASKED_TEXTS = """\
She opened the [MASK] and looked out into the garden.
He took off his [MASK] and sat down by the fire.
"I beg your [MASK]," said the old gentleman.
The horses were tired, and the [MASK] stopped before the inn.
It was a cold winter [MASK], and the snow was falling.
He drew his [MASK] and struck the man down.
Her eyes were full of [MASK].
They were married the next year and had three [MASK].
The king and the [MASK] sat upon their thrones.
The captain ordered his men to lower the [MASK] into the water."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class BenchmarkFlags(programs.TextFlags):
    """Data, output folder and length of training."""

    recipe: Literal["hour", "night"] = flag("hour", "Recipe.")


def run(args):
    """Trains, predicts masked words, and plots."""
    name = args.recipe
    folder = programs.pretrain(args, name, name, RECORDS, HELD_OUT, {})
    programs.run(
        *("-m", "albert_tf", "fill_mask"),
        f"--init_checkpoint={folder}",
        f"--spm_model_file={args.spm_model_file}",
        f"--text={MASKED_TEXTS}",
    )
    programs.run(
        "-m",
        "albert_tf",
        "plot_metrics",
        f"--metrics_file={folder}/metrics.jsonl",
        f"--output_file={folder}/curves.svg",
    )


if __name__ == "__main__":
    flags.launch(run, BenchmarkFlags)

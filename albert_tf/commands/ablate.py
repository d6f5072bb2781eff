r"""Trains a grid of models that differ in one thing each, and compares them.

    albert ablate --grid=configs/ablations/table4.json \
        --train_text=novels.txt --heldout_text=novels_valid.txt \
        --spm_model_file=30k-clean.model --output_dir=out/ablations \
        --task_data='film reviews=imdb,STS-B=glue'

Rerun the same command to resume. What several rows, seeds or grids have in
common is trained once per output folder. The same command in several terminals
divides the work. Writes a table, plots and all figures to the output folder
after each model.
"""

import dataclasses

from albert_tf import flags
from albert_tf.flags import flag


@dataclasses.dataclass(frozen=True, kw_only=True)
class AblateFlags(flags.Flags):
    """Grid, text, data of tasks, and output folder."""

    grid: str = flag(
        required=True, help="JSON file of a grid, as in configs/ablations."
    )
    train_text: str = flag(
        required=True, help="Training text: comma-separated paths or globs."
    )
    heldout_text: str = flag(
        required=True, help="Held-out text: comma-separated paths or globs."
    )
    output_dir: str = flag(
        required=True, help="Output folder, which several grids can share."
    )
    spm_model_file: str | None = flag(help="SentencePiece model.")
    vocab_file: str | None = flag(help="WordPiece vocabulary.")
    task_data: str = flag(
        "",
        "Folders with the data of the grid's tasks: NAME=FOLDER, "
        "comma-separated. Other tasks are left out.",
    )
    seeds: str = flag(
        "", "Comma-separated seeds to train. Default: the grid's."
    )
    only: str = flag(
        "", "Names of rows to train, separated by semicolons; empty: all."
    )
    num_workers: int = flag(
        1, "Processes that create records.", at_least=1, at_most=256
    )
    other_results: str = flag(
        "",
        "Comma-separated JSON files of reports of the same grid, with results "
        "to show that this output folder lacks.",
    )
    report_only: bool = flag(
        False, "Train nothing; compare what there is already."
    )

    def check(self):
        """Raises ValueError unless there is exactly one vocabulary."""
        if bool(self.spm_model_file) == bool(self.vocab_file):
            raise ValueError("Give --spm_model_file or --vocab_file.")


COMMAND = "albert_tf.lab.ablate", AblateFlags

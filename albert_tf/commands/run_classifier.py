r"""Fine-tunes and evaluates ALBERT on GLUE, or on any table of text.

python run_classifier.py --flagfile=configs/glue/mrpc.flags \
    --data_dir=glue --init_checkpoint=albert_base_v2 --output_dir=out \
    --do_train --do_eval --do_predict
"""

import dataclasses

from albert_tf.commands import groups
from albert_tf.flags import flag
from albert_tf.tasks.recipes import ExitSettings

# The keys of `table_tasks.GLUE`, repeated here because it is slow to import.
GLUE = tuple("cola sst-2 mrpc sts-b qqp mnli mismnli qnli rte wnli ax".split())


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassifierFlags(
    groups.ServingFlags, groups.FineTuningFlags, ExitSettings
):
    """The release's flags, followed by those added here."""

    data_dir: str = flag(
        required=True,
        help="Folder with one subfolder per GLUE task, or with the files that "
        "--task_config names.",
    )
    task_name: str | None = flag(help=f"One of {', '.join(GLUE)}.")
    do_eval: bool = flag(
        False,
        "Whether to evaluate on the dev data: at each checkpoint while "
        "training, or all existing checkpoints without --do_train.",
    )
    threshold_to_export: float | None = flag(
        help="Constant that the SavedModel returns as the output `threshold`.",
        at_least=-1e9,
        at_most=1e9,
    )
    task_config: str | None = flag(
        help="JSON file that describes a table of text, instead of "
        "--task_name; see docs/tasks.md."
    )

    def check(self):
        if bool(self.task_name) == bool(self.task_config):
            raise ValueError("Give either --task_name or --task_config.")
        if self.task_name and self.task_name.lower() not in GLUE:
            raise ValueError(
                f"--task_name={self.task_name}; known: {', '.join(GLUE)}. "
                "Describe your own data with --task_config."
            )
        if self.exit_loss and self.remat:
            raise ValueError(
                "--exit_loss needs the outputs of all layers, of which --remat "
                "keeps the last one only: give one of them."
            )
        is_given = self.exit_tolerance != ExitSettings.exit_tolerance
        if self.do_train and is_given and not self.exit_loss:
            raise ValueError(
                f"--exit_tolerance={self.exit_tolerance:g} is of no use in "
                "training without --exit_loss."
            )
        super().check()


COMMAND = "albert_tf.programs.run_classifier", ClassifierFlags

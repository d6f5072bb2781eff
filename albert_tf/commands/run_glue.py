"""Fine-tunes every GLUE task that lies under a folder, each by its recipe.

albert run_glue --data_dir=glue \
    --init_checkpoint=albert_base.tar.gz --output_dir=out

Run again, it goes on where it was stopped.
"""

import dataclasses

from albert_tf import filesystem, flags

PROGRAM = "albert_tf.tools.run_glue"


@dataclasses.dataclass(frozen=True, kw_only=True)
class GlueFlags(flags.Flags):
    """What is run, and what all runs are given beside their recipes."""

    data_dir: str = flags.flag(
        required=True, help="Folder with a folder for each task."
    )
    output_dir: str = flags.flag(
        required=True, help="Folder that gets a folder for each task."
    )
    init_checkpoint: str | None = flags.flag(
        help="Model to begin from, as for run_classifier.py."
    )
    tasks: str = flags.flag(
        "", "Tasks with commas between them. Default: all that have data."
    )
    recipes: str = flags.flag(
        str(filesystem.shipped_configs() / "glue"), "Folder with TASK.flags."
    )
    extra_flags: str = flags.flag(
        "", "More flags for run_classifier.py; they override the recipes."
    )


def main():
    """The command."""
    flags.launch(PROGRAM, GlueFlags)

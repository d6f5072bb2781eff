r"""Fine-tunes every GLUE task found in a folder, each with its own recipe.

albert run_glue --data_dir=glue \
    --init_checkpoint=albert_base_v2 --output_dir=out

Rerun the same command to resume.
"""

import dataclasses

from albert_tf import filesystem, flags
from albert_tf.flags import flag


@dataclasses.dataclass(frozen=True, kw_only=True)
class GlueFlags(flags.Flags):
    """Tasks to run, and the flags that all of them share."""

    data_dir: str = flag(
        required=True, help="Folder that contains one subfolder per task."
    )
    output_dir: str = flag(
        required=True, help="Output folder; each task gets a subfolder."
    )
    init_checkpoint: str | None = flag(
        help="Checkpoint to start from, as for run_classifier.py."
    )
    tasks: str = flag("", "Comma-separated tasks. Default: all that have data.")
    recipes: str = flag(
        str(filesystem.shipped_configs() / "glue"),
        "Folder that contains the recipes, TASK.flags.",
    )
    extra_flags: str = flag(
        "", "Additional run_classifier.py flags, which override the recipes."
    )


COMMAND = "albert_tf.programs.run_glue", GlueFlags

"""Downloads benchmarks in the layout that the fine-tuning programs read.

    albert download glue --to=glue
    albert download squad --to=squad
    albert download race --to=race

Files are compared with recorded SHA-256 digests. What is there already is not
downloaded again; what was cut off continues.
"""

import dataclasses
from typing import Literal

from albert_tf import flags
from albert_tf.flags import flag


@dataclasses.dataclass(frozen=True, kw_only=True)
class DownloadFlags(flags.Flags):
    """The benchmark, and where to put it."""

    data: Literal["glue", "squad", "race"] = flag(
        required=True,
        help="Benchmark to download; the same as its name without a flag.",
    )
    to: str = flag(required=True, help="Folder for the data.")


COMMAND = "albert_tf.programs.download", DownloadFlags

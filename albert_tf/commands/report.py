"""Writes an HTML report of a training run, finished or in progress.

    albert report --output_dir=out

The report contains settings, results and training curves, and, for fine-tuning
with dev data, the wrong predictions of the best checkpoint. The page is
self-contained and can be mailed or printed. Curves require matplotlib:
pip install matplotlib.
"""

import dataclasses
import functools

from albert_tf import flags
from albert_tf.flags import flag

PROGRAM = "albert_tf.reports.report"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportFlags(flags.Flags):
    """Folder of the run, and output file."""

    output_dir: str = flag(required=True, help="The run's --output_dir.")
    output_file: str | None = flag(
        help="Output .html file. Default: report.html in --output_dir."
    )

    def check(self):
        """Raises ValueError if the output file has another ending."""
        if self.output_file and not self.output_file.endswith(".html"):
            raise ValueError(
                f"--output_file={self.output_file} must end in .html."
            )


main = functools.partial(flags.launch, PROGRAM, ReportFlags)

"""Writes one page of HTML about a training, finished or running.

    albert report --output_dir=out

The page holds what the run is, its settings, results and curves, and where the
dev data was scored what the best checkpoint gets wrong. It needs no network:
mail it, print it. Curves need matplotlib: pip install matplotlib.
"""

import dataclasses

from albert_tf import flags

PROGRAM = "albert_tf.tools.report"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportFlags(flags.Flags):
    """Which training, and where the page goes."""

    output_dir: str = flags.flag(
        required=True, help="Folder of the training: its --output_dir."
    )
    output_file: str | None = flags.flag(
        help="Page to write: .html. Default: report.html in --output_dir."
    )

    def check(self):
        """Refuses a page of another ending."""
        if self.output_file and not self.output_file.endswith(".html"):
            raise ValueError(
                f"--output_file={self.output_file} must end in .html."
            )


def main():
    """The command."""
    flags.launch(PROGRAM, ReportFlags)

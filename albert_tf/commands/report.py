"""Writes an HTML report of a training run, finished or in progress.

    albert report --output_dir=out

With --compare=out_2, another run is shown beside it: scores with their
difference, settings that differ, and both curves in each plot.

The report contains settings, results and training curves, and, for fine-tuning
with dev data, the wrong predictions of the best checkpoint. The page is
self-contained and can be mailed or printed. Curves require matplotlib:
pip install matplotlib.
"""

import dataclasses

from albert_tf import filesystem, flags
from albert_tf.flags import flag


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportFlags(flags.Flags):
    """Folder of the run, others beside it, and output file."""

    output_dir: str = flag(required=True, help="The run's --output_dir.")
    compare: str | None = flag(
        help="Other runs to show beside this run: comma-separated folders."
    )
    output_file: str | None = flag(
        help="Output .html file. Default: report.html in --output_dir."
    )

    @property
    def others(self) -> list[str]:
        """The folders of --compare."""
        return filesystem.split_list(self.compare)

    def check(self):
        """Raises ValueError if a run is repeated or the file is no page."""
        folders = [self.output_dir, *self.others]
        if len({*map(filesystem.identity, folders)}) < len(folders):
            raise ValueError(
                f"--compare={self.compare} repeats a folder; wanted other runs "
                f"than --output_dir={self.output_dir}, each once."
            )
        filesystem.check_ending("--output_file", self.output_file, [".html"])


COMMAND = "albert_tf.reports.report", ReportFlags

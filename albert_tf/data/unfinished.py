"""What an interrupted run has finished, so that the next one can go on."""

import contextlib
import hashlib
import json
import logging
import os
import shutil
import tempfile

from albert_tf import filesystem, records


class Unfinished:
    """Notes in a folder; those of other settings or other text are void.

    Attributes:
      folder: where the notes are, and where intermediate files may be put.
      counts: what was counted when the text was tokenized; None before that.
      shards: results by output file, of those which are finished.
    """

    def __init__(self, folder, fingerprint):
        self.folder = folder
        self.fingerprint = fingerprint
        self.counts = None
        self.shards = {}
        self._path = os.path.join(folder, "state.json")
        notes = {}
        with contextlib.suppress(OSError, ValueError):
            with open(self._path, encoding="utf-8") as file:
                notes = json.load(file)
        if notes.get("fingerprint") == fingerprint:
            self.counts, self.shards = notes["counts"], notes["shards"]
            logging.warning(
                "Going on with a run that was interrupted; %d files are "
                "finished.",
                len(self.shards),
            )
        else:
            shutil.rmtree(folder, ignore_errors=True)
            os.makedirs(folder)

    def is_finished(self, output):
        """Whether a shard was written, and is still there."""
        import tensorflow as tf

        return output in self.shards and tf.io.gfile.exists(output)

    def keep_counts(self, counts):
        """Notes that the text is tokenized."""
        self.counts = counts
        self._write()

    def keep_shard(self, output, result):
        """Notes that a shard is written."""
        self.shards[output] = result
        self._write()

    def remove(self):
        """Forgets everything, when all is done."""
        shutil.rmtree(self.folder)

    def _write(self):
        notes = {
            "fingerprint": self.fingerprint,
            "counts": self.counts,
            "shards": self.shards,
        }
        filesystem.write_file(self._path, json.dumps(notes))


def fingerprint(inputs, *parts):
    """A name for some work: input files as they are now, and other values.

    Args:
      inputs: names of files; their sizes and times count, too.
      *parts: values that JSON can hold.
    """
    import tensorflow as tf

    stats = [tf.io.gfile.stat(path) for path in inputs]
    files = [
        [path, stat.length, stat.mtime_nsec]
        for path, stat in zip(inputs, stats, strict=True)
    ]
    return hashlib.sha256(json.dumps([files, parts]).encode()).hexdigest()


def folder_beside(output, fingerprint):
    """A hidden folder beside an output file, or a local one if it is remote."""
    if "://" in output:
        name = f"albert_tf-{fingerprint[:16]}"
        return os.path.join(tempfile.gettempdir(), name)
    name = os.path.basename(records.sidecar_path(output))
    name = "." + name.removesuffix(".dataset.json") + ".unfinished"
    return os.path.join(os.path.dirname(output), name)

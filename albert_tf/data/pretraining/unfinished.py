"""Records the progress of a run, so that an interrupted run can resume."""

import contextlib
import hashlib
import json
import logging
import os
import shutil

from albert_tf import filesystem
from albert_tf.data.pretraining import sidecars

_STATE = "state.json"


class Unfinished:
    """Folders next to the output that mark it as unfinished, and the progress.

    New files are written into these folders and renamed together when all are
    complete; until then, existing files can still be read. Recorded progress
    is ignored if the settings or the text differ, or if its file is truncated.
    As a context manager: if the text is not accepted, the folders are removed,
    unless existing files have been replaced.

    Attributes:
      folder: local folder of the progress file and of intermediate files.
      counts: counts of the tokenized text; None until the text is tokenized.
      shards: dict from finished output file to its counts.
    """

    def __init__(self, outputs: list[str], fingerprint: str):
        # Next to the first output if it is local, else in the user's cache.
        folder = sidecars.unfinished_folder(outputs[0])
        self.folder = (
            _cached(folder) if filesystem.is_remote(folder) else folder
        )
        self.fingerprint = fingerprint
        self.counts = None
        self.shards = {}
        self._path = os.path.join(self.folder, _STATE)
        folders = {sidecars.unfinished_folder(path) for path in outputs}
        self._folders = sorted(folders | {self.folder})
        missing = [f for f in self._folders if not filesystem.exists(f)]
        if state := self._read_state():
            self.counts, self.shards = state
            logging.warning(
                "Resuming an interrupted run; %d files are finished.",
                len(self.shards),
            )
        for folder in self._folders:
            filesystem.make_folder(folder)
        if self.counts is None:
            _empty(self.folder)
        for folder in missing:
            filesystem.write_file(os.path.join(folder, sidecars.UNTOUCHED), "")

    def __enter__(self):
        return self

    def __exit__(self, kind, *error):
        if kind and (self.counts is None or issubclass(kind, ValueError)):
            # Other folders still mark sets that may be mixed.
            with contextlib.suppress(OSError):
                for mark in self._marks():
                    filesystem.remove_folder(os.path.dirname(mark))

    def _marks(self):
        """Returns the files that say that no existing file is replaced."""
        marks = (os.path.join(f, sidecars.UNTOUCHED) for f in self._folders)
        return [*filter(filesystem.exists, marks)]

    def _read_state(self):
        """Returns counts and shards of the same work; None if there are none.

        A state of other settings or text has another fingerprint.
        """
        try:
            state = filesystem.read_json(self._path)
        except (OSError, ValueError):
            return None
        if state.get("fingerprint") != self.fingerprint:
            logging.warning(
                "The unfinished run in %s had other settings, text or paths: "
                "it is not continued, and its %d finished files are removed.",
                self.folder,
                len(state.get("shards", ())),
            )
            return None
        return state["counts"], state["shards"]

    def is_finished(self, output: str) -> bool:
        """Returns whether a shard was written and is still complete."""
        path = staged(output)
        if not filesystem.exists(path) and not self._marks():
            path = output  # It was renamed before the interruption.
        return (
            output in self.shards
            and filesystem.exists(path)
            and filesystem.size(path) == self.shards[output]["num_bytes"]
        )

    def keep_counts(self, counts: dict) -> None:
        """Records that the text is tokenized."""
        self._write(counts)
        self.counts = counts

    def keep_shard(self, output: str, result: dict) -> None:
        """Records that a shard is written, and its size."""
        num_bytes = filesystem.size(staged(output))
        self.shards[output] = {**result, "num_bytes": num_bytes}
        self._write(self.counts)

    def publish(self, outputs: list[str]) -> None:
        """Replaces existing files by the new ones, which are complete."""
        for mark in self._marks():
            filesystem.remove(mark)
        # Sidecars of an older run describe files about to be replaced.
        paths = set(map(sidecars.sidecar_path, outputs))
        for path in filter(filesystem.exists, paths):
            filesystem.remove(path)
        for output in filter(lambda o: filesystem.exists(staged(o)), outputs):
            filesystem.rename(staged(output), output)

    def remove(self) -> None:
        """Removes the folders, once all outputs are complete."""
        for folder in self._folders:
            filesystem.remove_folder(folder)

    def _write(self, counts):
        state = {
            "fingerprint": self.fingerprint,
            "counts": counts,
            "shards": self.shards,
        }
        filesystem.write_file(self._path, json.dumps(state))


def staged(output: str) -> str:
    """Returns the name of a record file until all of its set are complete."""
    folder = sidecars.unfinished_folder(output)
    return os.path.join(folder, os.path.basename(output))


def _empty(folder):
    """Empties a folder but keeps it, as the mark of an unfinished set."""
    for entry in list(os.scandir(folder)):
        if entry.name == sidecars.UNTOUCHED:
            continue
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.remove(entry.path)


def fingerprint(inputs: list[str], *parts) -> str:
    """Returns a fingerprint of the inputs and settings of a run.

    Of the files it has names, sizes and modification times; `parts` are JSON
    values.
    """
    files = [
        [
            path if filesystem.is_remote(path) else os.path.realpath(path),
            filesystem.size(path),
            filesystem.modified(path),
        ]
        for path in inputs
    ]
    return hashlib.sha256(json.dumps([files, parts]).encode()).hexdigest()


def lock_names(outputs: list[str]) -> list[str]:
    """Returns the paths to own while writing, one for each set of outputs.

    For remote outputs, the lock only excludes this user on this machine.
    """
    paths = {sidecars.sidecar_path(path) for path in outputs}
    return [
        f"{_cached(path)}.lock" if filesystem.is_remote(path) else path
        for path in sorted(paths)
    ]


def _cached(name):
    """Returns a local path for a remote name, in the user's cache folder."""
    digest = hashlib.sha256(name.encode()).hexdigest()[:16]
    return os.path.join(filesystem.cache_folder(), digest)

"""What an interrupted run has finished, so that the next one can go on."""

import contextlib
import hashlib
import json
import logging
import os
import shutil

from albert_tf import filesystem
from albert_tf.data.pretraining import sidecars

_STATE = "state.json"
_COUNTED = {
    "bad_characters",
    "cut_documents",
    "input_documents",
    "input_sentences",
    "input_tokens",
}
_COUNTED_OF_SHARD = {"num_bytes", "sequences"}


class Unfinished:
    """Folders beside the output that say it is not finished, and notes in one.

    Notes of other settings or other text, and torn ones, are void. As a
    context: where it is left by an error before the text was accepted, the
    folders that were made are removed, as no output was touched.

    Attributes:
      folder: where the notes are, and where intermediate files may be put; a
        local one.
      counts: what was counted when the text was tokenized; None before that.
      shards: results by output file, of those which are finished.
    """

    def __init__(self, outputs: list[str], fingerprint: str):
        # Beside the first output, if that is local.
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
        self._made = [
            folder for folder in self._folders if not filesystem.exists(folder)
        ]
        if notes := self._read_notes():
            self.counts, self.shards = notes
            logging.warning(
                "Going on with a run that was interrupted; %d files are "
                "finished.",
                len(self.shards),
            )
        for folder in self._folders:
            filesystem.make_folder(folder)
        if self.counts is None:
            _empty(self.folder)

    def __enter__(self):
        return self

    def __exit__(self, kind, *error):
        if kind and self.counts is None:
            # What stood there before still warns of files side by side.
            with contextlib.suppress(OSError):
                _remove(self._made)

    def _read_notes(self):
        """Counts and shards of the same work; None if there are none."""
        try:
            notes = filesystem.read_json(self._path)
        except (OSError, ValueError):
            return None
        if notes.get("fingerprint") != self.fingerprint:
            return None
        counts, shards = notes.get("counts"), notes.get("shards")
        is_sound = (
            _are_counts(counts, _COUNTED)
            and isinstance(shards, dict)
            and all(_are_counts(s, _COUNTED_OF_SHARD) for s in shards.values())
        )
        return (counts, shards) if is_sound else None

    def is_finished(self, output: str) -> bool:
        """Whether a shard was written, and is still there, all of it."""
        return (
            output in self.shards
            and filesystem.exists(output)
            and filesystem.size(output) == self.shards[output]["num_bytes"]
        )

    def keep_counts(self, counts: dict) -> None:
        """Notes that the text is tokenized."""
        self._write(counts)
        self.counts = counts

    def keep_shard(self, output: str, result: dict) -> None:
        """Notes that a shard is written, and how large it is."""
        num_bytes = filesystem.size(output)
        self.shards[output] = {**result, "num_bytes": num_bytes}
        self._write(self.counts)

    def remove(self) -> None:
        """Forgets everything, when all is done."""
        _remove(self._folders)

    def _write(self, counts):
        notes = {
            "fingerprint": self.fingerprint,
            "counts": counts,
            "shards": self.shards,
        }
        filesystem.write_file(self._path, json.dumps(notes))


def _are_counts(values, wanted):
    return (
        isinstance(values, dict)
        and wanted <= values.keys()
        and all(type(number) is int for number in values.values())
    )


def _empty(folder):
    """Removes what is in a folder, which stays: it shows that files may mix."""
    for entry in list(os.scandir(folder)):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.remove(entry.path)


def _remove(folders):
    for folder in folders:
        filesystem.remove_folder(folder)


def fingerprint(inputs: list[str], *parts) -> str:
    """A name for some work: input files as they are now, and other values.

    Args:
      inputs: names of files; their sizes and times count, too.
      *parts: values that JSON can hold.
    """
    files = [
        [path, filesystem.size(path), filesystem.modified(path)]
        for path in inputs
    ]
    return hashlib.sha256(json.dumps([files, parts]).encode()).hexdigest()


def lock_names(outputs: list[str]) -> list[str]:
    """What to own while the outputs are written, one name for each set.

    Of remote outputs, only this user on this machine knows.
    """
    paths = {sidecars.sidecar_path(path) for path in outputs}
    return [
        f"{_cached(path)}.lock" if filesystem.is_remote(path) else path
        for path in sorted(paths)
    ]


def _cached(name):
    """A path for something remote, in a folder that is the user's own."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    digest = hashlib.sha256(name.encode()).hexdigest()[:16]
    return os.path.join(cache, "albert_tf", digest)

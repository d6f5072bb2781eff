"""Checkpoints in the release's layout: canonical names, TF1 tensor bundles.

A checkpoint consists of two files, `<prefix>.index` and
`<prefix>.data-00000-of-00001`. They contain tensors by canonical name, the
optimizer's slots as `<name>/adam_m` and `<name>/adam_v`, and `global_step`.
The release's own scripts and `tf.train.load_checkpoint` can read them, and
renaming a layer or an attribute cannot break them.
"""

import contextlib
import glob
import itertools
import logging
import os
import re
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf

from albert_tf import filesystem

PREFIX = "model.ckpt"
DATA_ENDING = ".data-00000-of-00001"
ENDINGS = (DATA_ENDING, ".index")
_READ_ERRORS = (tf.errors.OpError, IndexError, RuntimeError)
# Suffix of a file that marks a checkpoint written on interruption, at a step
# where an uninterrupted run writes none. Such a checkpoint is no candidate for
# the best, and the next regular checkpoint replaces it.
MARK = ".interrupted"
STEP = "global_step"
# Last parts of the names of the optimizer's slots.
SLOTS = ("adam_m", "adam_v")


class DamagedCheckpoint(ValueError):
    """A checkpoint cannot be read, or has values that are not finite."""


def check_finite(values: dict[str, np.ndarray], source) -> None:
    """Raises DamagedCheckpoint if a value is NaN or infinite."""
    for name, value in values.items():
        value = np.asarray(value)
        if value.dtype.kind in "fV" and not np.isfinite(value).all():
            raise DamagedCheckpoint(
                f"{source}: {name} contains NaN or infinity. Did its training "
                "diverge? Use an earlier checkpoint."
            )


def write_checkpoint(prefix: filesystem.Path, variables: dict) -> None:
    """Writes variables, tensors or arrays by name, atomically.

    `prefix` is a path without suffix, such as `out/model.ckpt-100`.
    """
    # `.numpy()` of a distributed variable returns the first replica's copy.
    values = {
        name: v.numpy() if hasattr(v, "numpy") else np.asarray(v)
        for name, v in sorted(variables.items())
    }
    # Not tf.train.Checkpoint, whose names follow the structure of the code.
    with publishing(prefix) as temporary, tf.device("CPU:0"):
        tf.raw_ops.SaveV2(
            prefix=temporary,
            tensor_names=list(values),
            shape_and_slices=[""] * len(values),
            tensors=list(map(tf.convert_to_tensor, values.values())),
        )


@contextlib.contextmanager
def publishing(prefix: filesystem.Path) -> Iterator[str]:
    """Context manager: yields a temporary prefix, then renames the checkpoint.

    If writing fails, the temporary files are removed.
    """
    temporary = f"{prefix}.writing-{os.getpid()}"
    try:
        yield temporary
        # A checkpoint exists if its index does, so the old index is removed
        # first and the new one is renamed last.
        if filesystem.exists(f"{prefix}.index"):
            filesystem.remove(f"{prefix}.index")
        for ending in ENDINGS:
            filesystem.rename(temporary + ending, f"{prefix}{ending}")
    except BaseException:
        # Frees space on a full disk.
        folder, name = os.path.split(temporary)
        for path in filesystem.find_files(folder, f"{glob.escape(name)}*"):
            with contextlib.suppress(OSError, tf.errors.OpError):
                filesystem.remove(path)
        raise


def step_of(prefix: filesystem.Path) -> int:
    """Returns the step in a checkpoint's name, or -1 if it has none."""
    match = re.search(r"\.ckpt-(\d+)$", str(prefix))
    return int(match[1]) if match else -1


def list_checkpoints(folder: filesystem.Path) -> list[str]:
    """Returns the prefixes of a folder's numbered checkpoints, by step."""
    indexes = filesystem.find_files(folder, f"{PREFIX}-*.index")
    prefixes = [i.removesuffix(".index") for i in indexes]
    return sorted((p for p in prefixes if step_of(p) >= 0), key=step_of)


def find_best(folder: filesystem.Path) -> str | None:
    """Returns the prefix of a folder's best checkpoint, or None."""
    best = os.path.join(folder, f"{PREFIX}-best")
    return best if filesystem.exists(f"{best}.index") else None


def check_free(folder: filesystem.Path) -> None:
    """Raises ValueError if training would overwrite another run's model."""
    if list_checkpoints(folder):
        return
    if best := find_best(folder):
        raise ValueError(
            f"{folder} contains the model {best}, which training would "
            f"overwrite. Set another output_dir, and init_checkpoint="
            f"{folder} to initialize from it. (If it is of a run whose other "
            "checkpoints you have removed, rename its files to "
            "model.ckpt-STEP.*, with its global_step, to continue from there.)"
        )
    for name in ("config.json", "saved_model.pb"):
        if filesystem.exists(os.path.join(folder, name)):
            raise ValueError(
                f"{folder} contains a model of another format ({name}), which "
                "would be read instead of what is trained there. Set another "
                f"output_dir, and init_checkpoint={folder} to initialize from "
                "it."
            )


def find_checkpoints(path: filesystem.Path) -> list[str]:
    """Returns the prefixes of the checkpoints at a path, the newest last.

    The path is a prefix, its .index file, or a folder with numbered
    checkpoints, or with a single one.

    Raises:
      FileNotFoundError: if there is none, or several without a number.
    """
    is_file = str(path).endswith(".index")
    path = str(path).removesuffix(".index")
    if filesystem.exists(f"{path}.index"):
        return [path]
    if is_file or not filesystem.is_folder(path):
        folder = os.path.dirname(path) or "."
        indexes = filesystem.find_files(folder, "*.index")
        names = [os.path.basename(f) for f in indexes]
        raise FileNotFoundError(
            f"{path}.index does not exist; {folder} has {names or 'no index'}. "
            "Wanted a checkpoint's prefix, such as model.ckpt-best."
        )
    if numbered := list_checkpoints(path):
        return numbered
    indexes = filesystem.find_files(path, "*.index")
    if not indexes:
        names = filesystem.list_folder(path)
        cause = "Was it copied completely?"
        if "run_1" in names:
            cause = f"Give the folder of one run, such as {path}/run_1."
        raise FileNotFoundError(
            f"{path} has no model.ckpt-*.index; it has {names}. {cause}"
        )
    if len(indexes) > 1:
        raise FileNotFoundError(
            f"{path} has {len(indexes)} checkpoints without a number: "
            f"{[os.path.basename(f) for f in indexes]}. Name the one to read."
        )
    return [indexes[0].removesuffix(".index")]


def read_newest(prefixes: Sequence[str]) -> tuple[str, dict[str, np.ndarray]]:
    """Reads the last of some checkpoints that is complete and finite.

    The others are skipped with a warning. Returns its prefix, and a dict from
    name to array.

    Raises:
      DamagedCheckpoint: if there is none; it says what is wrong with the last.
    """
    errors = []
    for prefix in reversed(prefixes):
        try:
            values = _read(prefix)
            if len(prefixes) > 1:
                check_finite(values, prefix)
            return prefix, values
        except DamagedCheckpoint as error:
            if len(prefixes) > 1:
                logging.warning("%s This checkpoint is skipped.", error)
            errors.append(error)
    raise errors[0]


def read_checkpoint(path: filesystem.Path) -> dict[str, np.ndarray]:
    """Reads every tensor of what `find_checkpoints` finds, by name.

    Raises:
      FileNotFoundError: if there is no checkpoint.
      ValueError: if its data file is truncated or damaged.
    """
    return read_newest(find_checkpoints(path))[1]


def _read(prefix):
    with contextlib.suppress(*_READ_ERRORS):
        return _read_tensors(prefix)
    # What cannot be reached, as in an outage, is not damaged: that is the
    # error then. TensorFlow's classes of errors do not tell.
    for ending in ENDINGS:
        if filesystem.exists(prefix + ending):
            with filesystem.open_file(prefix + ending) as file:
                # An outage may end only later in a large file.
                while file.read(1 << 24) and filesystem.is_remote(prefix):
                    pass
    try:
        return _read_tensors(prefix)
    except _READ_ERRORS as error:
        raise DamagedCheckpoint(
            f"{prefix} cannot be read: {str(error).splitlines()[0]}\nWas the "
            "copy or download cut off? Compare the size of its data file with "
            "the original."
        ) from error


def _read_tensors(prefix, names=None):
    # Not tf.train.load_checkpoint, which searches for the prefix again and
    # cannot find it on some file systems.
    with filesystem.named_plainly(prefix) as plain_prefix:
        reader = tf.compat.v1.train.NewCheckpointReader(plain_prefix)
        return {
            name: reader.get_tensor(name)
            for name in names or reader.get_variable_to_shape_map()
        }


def read_step(prefix: filesystem.Path) -> int:
    """Returns the step of a checkpoint, or -1 if it is unknown.

    That in its name, else that of its values, as in a copy of the best one.
    """
    if (step := step_of(prefix)) >= 0:
        return step
    with contextlib.suppress(*_READ_ERRORS):
        return int(_read_tensors(prefix, [STEP])[STEP])
    return -1


def find_slots(values: dict[str, np.ndarray]) -> set[str]:
    """Returns the names that belong to an optimizer instead of the model.

    A slot has the name of a model variable with a suffix, below a scope, or
    both; a counter is a single number.
    """
    return {n for n in values if _is_counter(n, values) or _is_slot(n, values)}


def _is_counter(name, values):
    shape = np.shape(values[name])
    is_weight = name.endswith(("bias", "beta", "gamma"))
    return shape == () or (shape == (1,) and not is_weight)


def _is_slot(name, names):
    parts = name.split("/")
    return any(
        "/".join(parts[start:end]) in names
        for start, end in itertools.combinations(range(len(parts) + 1), 2)
        if end < len(parts) or (start and parts[start] in ("bert", "cls"))
    )


def restore(
    variables: dict,
    values: dict[str, np.ndarray],
    source: filesystem.Path,
    new_prefixes: Sequence[str] = (),
) -> list[str]:
    """Assigns values to variables by name; all variables must be found.

    Those whose names start with one of `new_prefixes` may be missing from
    `values`; they are not changed then, and their names are returned. Surplus
    values are ignored.

    Raises:
      ValueError: if another variable is missing, a shape differs or a value
        is not finite; nothing is assigned then. `source` is named.
    """
    missing = [n for n in variables if n not in values]
    required = [n for n in missing if not n.startswith(tuple(new_prefixes))]
    if required:
        others = sorted(values.keys() - find_slots(values))
        if any("/layer_0/" in n for n in others):
            raise ValueError(
                f"{source} has separate weights for every layer, such as "
                f"{others[-1]}; wanted an ALBERT checkpoint. Is it a BERT "
                "checkpoint?"
            )
        cause = "a model without this head, or of another task"
        if any(n.startswith("bert/e") for n in required):
            cause = (
                "another architecture (layers, groups, parameter_sharing) or "
                "of another program"
            )
        raise ValueError(
            f"{source} lacks {len(required)} of {len(variables)} variables, "
            f"such as {required[:2]}; it has {len(others)}, such as "
            f"{others[:2]}. Is it a checkpoint of {cause}?"
        )
    given = {n: v for n, v in variables.items() if n in values}
    for name, variable in given.items():
        if values[name].shape != variable.shape:
            raise ValueError(
                f"{source}: {name} is {values[name].shape}, the model's is "
                f"{tuple(variable.shape)}. Does it have another config or "
                "vocabulary?"
            )
    check_finite({name: values[name] for name in given}, source)
    for name, variable in given.items():
        variable.assign(values[name])
    return missing


def check_end(folder: filesystem.Path, step: int, num_steps: int) -> None:
    """Raises ValueError if a run is already trained for more steps."""
    if step > num_steps:
        raise ValueError(
            f"{folder} was trained for {step} steps; wanted {num_steps}. Train "
            "for more steps, or use its checkpoints without training."
        )


def remove_checkpoint(prefix: str) -> None:
    """Removes a checkpoint; its index first, as that makes it complete."""
    folder, name = os.path.split(prefix)
    data = filesystem.find_files(folder, f"{glob.escape(name)}.data-*")
    for path in (f"{prefix}.index", *data):
        if filesystem.exists(path):
            filesystem.remove(path)


class CheckpointManager:
    """Keeps the newest checkpoints of a run, and the best one.

    Args:
      folder: folder of the checkpoints; created if missing.
      variables: dict from name to variable, including `global_step`.
      max_to_keep: number of numbered checkpoints to keep; 0 keeps all.
      is_writing: whether to write checkpoints; False where another process
        writes them.

    Attributes:
      source: source of the variables' values; None as long as they are the
        random ones. Set where values are assigned.
      damaged: prefixes of checkpoints that could not be restored.

    Example:
      >>> import tempfile
      >>> step = tf.Variable(0, dtype=tf.int64)
      >>> variables = {"bert/pooler/dense/bias": tf.Variable([1.0, 2.0])}
      >>> manager = CheckpointManager(
      ...     tempfile.mkdtemp(), variables | {"global_step": step})
      >>> _ = step.assign(10)
      >>> manager.keep_best(manager.save())
      >>> _ = step.assign(0)
      >>> manager.restore_latest()
      '.../model.ckpt-10'
      >>> int(step)
      10
    """

    def __init__(
        self,
        folder: filesystem.Path,
        variables: dict,
        max_to_keep: int = 5,
        is_writing: bool = True,
    ):
        filesystem.check_can_be_named(folder)
        self.folder = str(folder)
        self.variables = variables
        if max_to_keep < 0:
            raise ValueError(
                f"keep_checkpoint_max is {max_to_keep}; wanted a number of "
                "checkpoints, or 0 to keep all."
            )
        self.max_to_keep = max_to_keep
        self.is_writing = is_writing
        self.damaged: set[str] = set()
        self.source: str | None = None
        filesystem.make_folder(self.folder)

    def prefix(self, label: int | str) -> str:
        """Returns the prefix of the checkpoint of a step, or of "best"."""
        return os.path.join(self.folder, f"{PREFIX}-{label}")

    def save(self, is_interrupted: bool = False) -> str:
        """Writes a checkpoint of the current step; deletes old ones.

        If `is_interrupted`, it is between the regular ones, the next of which
        replaces it. Returns its prefix.

        Raises:
          FloatingPointError: if a value is not finite; nothing changes then.
        """
        step = int(self.variables[STEP].numpy())
        prefix = self.prefix(step)
        values = {}
        try:
            for name, variable in self.variables.items():
                value = variable.numpy()
                check_finite({name: value}, f"The model of step {step}")
                # Other workers check, so that all stop, but keep no copy.
                if self.is_writing:
                    values[name] = value
        except DamagedCheckpoint as error:
            raise FloatingPointError(
                f"{error} It was not saved: the checkpoints in {self.folder} "
                "are older. Lower the learning rate or lengthen the warmup."
            ) from None
        self.source = prefix
        if not self.is_writing:
            return prefix
        if is_interrupted:
            filesystem.write_file(prefix + MARK, "")
        write_checkpoint(prefix, values)
        self.damaged.discard(prefix)
        self._remove_interrupted(prefix, is_kept=is_interrupted)
        self._drop_old(step)
        return prefix

    def confirm_latest(self) -> None:
        """Makes the checkpoint of the current step a regular one.

        For a run that ends at the step where it was interrupted.
        """
        step = int(self.variables[STEP].numpy())
        prefix = self.prefix(step)
        if self.is_writing and step and self.is_interrupted(prefix):
            self._remove_interrupted(prefix)
            self._drop_old(step)

    def _drop_old(self, step):
        """Deletes old checkpoints and updates TensorFlow's state file.

        Checkpoints of an interruption do not count: they will be replaced.
        Checkpoints after `step`, if any, are damaged: training resumed from an
        older one.
        """
        prefixes = list_checkpoints(self.folder)
        prefixes = [p for p in prefixes if step_of(p) <= step]
        old = self.damaged.intersection(prefixes)
        if self.max_to_keep:
            regular = [
                p
                for p in prefixes
                if p not in old and not self.is_interrupted(p)
            ]
            old |= {*regular[: -self.max_to_keep]}
        for prefix in old:
            remove_checkpoint(prefix)
        self.damaged -= old
        self._write_state([p for p in prefixes if p not in old])

    def _write_state(self, prefixes):
        """Writes TensorFlow's file that lists the checkpoints."""
        names = [os.path.basename(prefix) for prefix in prefixes]
        lines = [f'model_checkpoint_path: "{names[-1]}"']
        lines += [f'all_model_checkpoint_paths: "{n}"' for n in names]
        path = os.path.join(self.folder, "checkpoint")
        filesystem.write_file(path, "\n".join(lines) + "\n")

    def is_interrupted(self, prefix: str) -> bool:
        """Returns whether a checkpoint was written on interruption."""
        return filesystem.exists(f"{prefix}{MARK}")

    def _remove_interrupted(self, newest, is_kept=False):
        """Removes checkpoints of interruptions but the newest, and its mark.

        If `is_kept`, the newest is one of them and keeps its mark.
        """
        for path in filesystem.find_files(self.folder, f"{PREFIX}-*{MARK}"):
            if (prefix := path.removesuffix(MARK)) != newest:
                remove_checkpoint(prefix)
            elif is_kept:
                continue
            filesystem.remove(path)

    def restore_latest(self) -> str | None:
        """Restores the newest numbered checkpoint, including the optimizer.

        Damaged checkpoints, and those with values that are not finite, are
        skipped with a warning. Incomplete files of a killed run are removed.
        Old checkpoints are deleted by `save` only: the run may have been
        started with wrong settings.

        Returns:
          Its prefix, or None if there is no checkpoint.

        Raises:
          ValueError: if no checkpoint can be read, or it is of another model.
        """
        self._clean()
        prefixes = list_checkpoints(self.folder)
        if not prefixes:
            return None
        try:
            prefix, values = read_newest(prefixes)
            check_finite(values, prefix)
        except DamagedCheckpoint as error:
            raise ValueError(
                f"{error}\n{self.folder} has {len(prefixes)} checkpoints, none "
                "of which can be read. Remove them to start over."
            ) from error
        num_read = prefixes.index(prefix) + 1
        self.damaged.update(prefixes[num_read:])
        self._assign(values, prefix)
        self._write_state(prefixes[:num_read])
        return prefix

    def _clean(self):
        """Removes incomplete files that a killed run left."""
        for path in filesystem.find_files(self.folder, f"{PREFIX}-*"):
            stem = re.sub(rf"({re.escape(DATA_ENDING)}|{MARK})$", "", path)
            is_orphan = stem != path and not filesystem.exists(f"{stem}.index")
            if ".writing-" in os.path.basename(path) or is_orphan:
                filesystem.remove(path)

    def restore(self, prefix: str) -> None:
        """Restores every variable from a checkpoint of this run."""
        self._assign(read_checkpoint(prefix), prefix)

    def _assign(self, values, prefix):
        """Restores every variable.

        Slots that the checkpoint lacks are 0: of weights that were frozen, or
        trained by Muon, whose only slot is of no use without the other one.
        """
        if any(name.endswith(SLOTS) for name in values):
            zeros: dict = {}
            for name, variable in self.variables.items():
                weight, _, slot = name.rpartition("/")
                if slot in SLOTS and name not in values:
                    zero = np.zeros(variable.shape, np.float32)
                    zeros |= {f"{weight}/{x}": zero for x in SLOTS}
            values = {**values, **zeros}
        restore(self.variables, values, prefix)
        self.source = prefix

    def keep_best(self, prefix: str) -> None:
        """Copies a checkpoint to `model.ckpt-best`."""
        self.copy(prefix, "best")

    def copy(self, prefix: str, label: int | str) -> None:
        """Copies a checkpoint to that of another label."""
        if not self.is_writing:
            return
        if not filesystem.exists(prefix + DATA_ENDING):  # It has several.
            write_checkpoint(self.prefix(label), _read(prefix))
            return
        with publishing(self.prefix(label)) as temporary:
            for ending in ENDINGS:
                filesystem.copy(f"{prefix}{ending}", temporary + ending)

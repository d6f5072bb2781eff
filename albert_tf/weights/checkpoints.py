"""Checkpoints in the release's layout: canonical names, TF1 tensor bundles.

A checkpoint is two files, `<prefix>.index` and
`<prefix>.data-00000-of-00001`, that hold tensors by canonical name, the
optimizer's slots as `<name>/adam_m` and `<name>/adam_v`, and `global_step`.
The release's own scripts read them, `tf.train.load_checkpoint` does too, and
renaming a layer or an attribute cannot break them.
"""

import contextlib
import glob
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
# Beside a checkpoint that an interruption wrote, at a step that has none in
# a run which nobody interrupts: no candidate for the best, and gone after the
# next checkpoint.
MARK = ".interrupted"
STEP = "global_step"
_SLOT = re.compile(r"/adam_[mv]$")


def write_checkpoint(prefix: filesystem.Path, variables: dict) -> None:
    """Writes variables under their names, whole or not at all.

    Args:
      prefix: path without endings, such as `out/model.ckpt-100`.
      variables: dict from name to variable, tensor or array.
    """
    # `.numpy()` of a distributed variable is its first replica's copy.
    values = {
        name: v.numpy() if hasattr(v, "numpy") else np.asarray(v)
        for name, v in sorted(variables.items())
    }
    with publishing(prefix) as temporary, tf.device("CPU:0"):
        tf.raw_ops.SaveV2(
            prefix=temporary,
            tensor_names=list(values),
            shape_and_slices=[""] * len(values),
            tensors=list(map(tf.convert_to_tensor, values.values())),
        )


@contextlib.contextmanager
def publishing(prefix: filesystem.Path) -> Iterator[str]:
    """Gives another prefix to write to; a checkpoint has its name at the end.

    Where the writing fails, what was written is removed.
    """
    temporary = f"{prefix}.writing-{os.getpid()}"
    try:
        yield temporary
        # A checkpoint without an index is no checkpoint: so an older one
        # goes first and the new one comes last.
        if filesystem.exists(f"{prefix}.index"):
            filesystem.remove(f"{prefix}.index")
        for ending in ENDINGS:
            filesystem.rename(temporary + ending, f"{prefix}{ending}")
    except BaseException:
        # Of a disk that is full, this gives something back.
        folder, name = os.path.split(temporary)
        for path in filesystem.find_files(folder, f"{glob.escape(name)}*"):
            with contextlib.suppress(OSError, tf.errors.OpError):
                filesystem.remove(path)
        raise


def copy_checkpoint(prefix: filesystem.Path, target: filesystem.Path) -> None:
    """Copies a checkpoint to another prefix, whole or not at all."""
    with publishing(target) as temporary:
        for ending in ENDINGS:
            filesystem.copy(f"{prefix}{ending}", temporary + ending)


def step_of(prefix: filesystem.Path) -> int:
    """Returns the step in a checkpoint's name, or -1 where there is none."""
    match = re.search(r"\.ckpt-(\d+)$", str(prefix))
    return int(match[1]) if match else -1


def list_checkpoints(folder: filesystem.Path) -> list[str]:
    """Returns the prefixes of a folder's numbered checkpoints, by step."""
    indexes = filesystem.find_files(folder, f"{PREFIX}-*.index")
    prefixes = [i.removesuffix(".index") for i in indexes]
    return sorted((p for p in prefixes if step_of(p) >= 0), key=step_of)


def find_trained(folder: filesystem.Path) -> list[str]:
    """Returns the prefixes of a folder's checkpoints, the best one last."""
    prefixes = list_checkpoints(folder)
    best = os.path.join(folder, f"{PREFIX}-best")
    if filesystem.exists(f"{best}.index"):
        prefixes = [*prefixes, best]
    return prefixes


def check_free(folder: filesystem.Path) -> None:
    """Raises ValueError if training would replace another run's model."""
    prefixes = find_trained(folder)
    if prefixes and not list_checkpoints(folder):
        raise ValueError(
            f"{folder} holds the model {prefixes[-1]}, which a training there "
            f"would replace. Give another --output_dir, and --init_checkpoint="
            f"{folder} to begin with it."
        )


def find_checkpoint(path: filesystem.Path) -> str:
    """Returns the prefix of the checkpoint that a path means.

    Args:
      path: a prefix, its .index file, or a folder: then its newest numbered
        checkpoint or, without one, its only checkpoint.

    Raises:
      FileNotFoundError: if there is none, or several without a number.
    """
    path = str(path).removesuffix(".index")
    if filesystem.exists(f"{path}.index"):
        return path
    if not filesystem.is_folder(path):
        folder = os.path.dirname(path) or "."
        indexes = filesystem.find_files(folder, "*.index")
        names = [os.path.basename(f) for f in indexes]
        raise FileNotFoundError(
            f"{path}.index does not exist; {folder} has {names or 'no index'}. "
            "Give the checkpoint's prefix, such as model.ckpt-best."
        )
    if numbered := list_checkpoints(path):
        return numbered[-1]
    indexes = filesystem.find_files(path, "*.index")
    if not indexes:
        raise FileNotFoundError(
            f"{path} has no model.ckpt-*.index; it has "
            f"{filesystem.list_folder(path)}. Was all of it copied?"
        )
    if len(indexes) > 1:
        raise FileNotFoundError(
            f"{path} has {len(indexes)} checkpoints without a number "
            f"{[os.path.basename(f) for f in indexes]}; name the one to read."
        )
    return indexes[0].removesuffix(".index")


def read_checkpoint(path: filesystem.Path) -> dict[str, np.ndarray]:
    """Reads every tensor of a checkpoint.

    Args:
      path: as for `find_checkpoint`.

    Returns:
      Dict from name to array.

    Raises:
      FileNotFoundError: if there is no checkpoint.
      ValueError: if its data is cut off or damaged.
    """
    prefix = find_checkpoint(path)
    try:
        # Not tf.train.load_checkpoint, which looks for the prefix once more
        # and does not find it on every file system.
        with filesystem.named_plainly(prefix) as plain_prefix:
            reader = tf.compat.v1.train.NewCheckpointReader(plain_prefix)
            return {
                name: reader.get_tensor(name)
                for name in reader.get_variable_to_shape_map()
            }
    except (tf.errors.OpError, IndexError, RuntimeError) as error:
        raise ValueError(
            f"{prefix} cannot be read: {str(error).splitlines()[0]}\nWas the "
            "copy or download cut off? Its data file should have the size "
            "that the writer's has."
        ) from error


def is_slot(name: str) -> bool:
    """Whether a name is one of the optimizer's, not of the model's."""
    return name == STEP or bool(_SLOT.search(name))


def restore(
    variables: dict,
    values: dict[str, np.ndarray],
    source: filesystem.Path,
    new_prefixes: Sequence[str] = (),
) -> list[str]:
    """Assigns values to variables of the same names, all of them.

    Args:
      variables: dict from name to variable.
      values: dict from name to array; names of no variable are left alone.
      source: where the values are from, for messages.
      new_prefixes: variables whose names begin so may be missing in `values`
        and then keep what they have.

    Returns:
      The names that were missing.

    Raises:
      ValueError: if another variable is missing, a shape differs or a number
        is not finite; nothing is assigned then.
    """
    missing = [n for n in variables if n not in values]
    lost = [n for n in missing if not n.startswith(tuple(new_prefixes))]
    if lost:
        others = sorted(n for n in values if not is_slot(n))
        if any("/layer_0/" in n for n in others):
            raise ValueError(
                f"{source} has weights of every layer, such as {others[-1]}: "
                "a BERT checkpoint? Only ALBERT's can be read."
            )
        raise ValueError(
            f"{source} lacks {len(lost)} of {len(variables)} variables, such "
            f"as {lost[:2]}; it has {len(others)}, such as {others[:2]}. Is "
            "it a checkpoint of another architecture (layers, groups, "
            "parameter_sharing) or of another program?"
        )
    given = {n: v for n, v in variables.items() if n in values}
    for name, variable in given.items():
        if values[name].shape != variable.shape:
            raise ValueError(
                f"{source}: {name} is {values[name].shape}, the model's is "
                f"{tuple(variable.shape)}. Is it of another config or "
                "vocabulary?"
            )
        if not np.isfinite(values[name]).all():
            raise ValueError(
                f"{source}: {name} holds NaN or infinity. Is it of a training "
                "that diverged? Take an earlier checkpoint."
            )
    for name, variable in given.items():
        variable.assign(values[name])
    return missing


def check_end(folder: filesystem.Path, step: int, num_steps: int) -> None:
    """Raises ValueError if a run was trained for more steps than are wanted."""
    if step > num_steps:
        raise ValueError(
            f"{folder} was trained for {step} steps; wanted are {num_steps}. "
            "Give more steps, or leave out --do_train to use what is there."
        )


def remove_checkpoint(prefix: str) -> None:
    """Removes a checkpoint: the index first, as it comes last."""
    for ending in reversed(ENDINGS):
        if filesystem.exists(prefix + ending):
            filesystem.remove(prefix + ending)


class CheckpointManager:
    """Keeps the newest checkpoints of a training, and the best one.

    Args:
      folder: where they lie; made if absent.
      variables: dict from name to variable, with `global_step`.
      max_to_keep: numbered checkpoints kept; 0 keeps all.
    """

    def __init__(
        self, folder: filesystem.Path, variables: dict, max_to_keep: int = 5
    ):
        self.folder = str(folder)
        self.variables = variables
        self.max_to_keep = max_to_keep
        filesystem.make_folder(self.folder)

    def prefix(self, label: int | str) -> str:
        """Returns the prefix of a step's checkpoint, or of "best"."""
        return os.path.join(self.folder, f"{PREFIX}-{label}")

    def save(self, is_interrupted: bool = False) -> str:
        """Writes the checkpoint of this step; deletes what is too old.

        Args:
          is_interrupted: whether it is not due but written so that work is not
            lost; the next one that is due takes its place.

        Returns:
          Its prefix.
        """
        prefix = self.prefix(int(self.variables[STEP].numpy()))
        if is_interrupted:
            filesystem.write_file(prefix + MARK, "")
        write_checkpoint(prefix, self.variables)
        if not is_interrupted:
            self._remove_interrupted(prefix)
        self._drop_old(list_checkpoints(self.folder))
        return prefix

    def _drop_old(self, prefixes):
        """Deletes the oldest, and tells TensorFlow which is the newest."""
        if self.max_to_keep:
            for old in prefixes[: -self.max_to_keep]:
                remove_checkpoint(old)
            prefixes = prefixes[-self.max_to_keep :]
        names = [os.path.basename(prefix) for prefix in prefixes]
        lines = [f'model_checkpoint_path: "{names[-1]}"']
        lines += [f'all_model_checkpoint_paths: "{n}"' for n in names]
        path = os.path.join(self.folder, "checkpoint")
        filesystem.write_file(path, "\n".join(lines) + "\n")

    def is_interrupted(self, prefix: str) -> bool:
        """Whether an interruption wrote a checkpoint that was not due."""
        return filesystem.exists(f"{prefix}{MARK}")

    def _remove_interrupted(self, newest):
        """Removes checkpoints that were not due, and the mark of this one."""
        for path in filesystem.find_files(self.folder, f"{PREFIX}-*{MARK}"):
            if (prefix := path.removesuffix(MARK)) != newest:
                remove_checkpoint(prefix)
            filesystem.remove(path)

    def restore_latest(self) -> str | None:
        """Restores the newest numbered checkpoint, optimizer and all.

        One that is damaged is passed over, and said so. What a training that
        was killed had half written or half removed goes, and what it had yet
        to do after its last checkpoint is done.

        Returns:
          Its prefix, or None where there is none.

        Raises:
          ValueError: if none can be read, or it is of another model.
        """
        self._clean()
        prefixes = list_checkpoints(self.folder)
        for prefix in reversed(prefixes):
            try:
                values = read_checkpoint(prefix)
            except ValueError as error:
                logging.warning("%s It is passed over.", error)
                continue
            restore(self.variables, values, prefix)
            self._drop_old(prefixes[: prefixes.index(prefix) + 1])
            return prefix
        if prefixes:
            raise ValueError(
                f"{self.folder} has {len(prefixes)} checkpoints, none of which "
                "can be read. Remove them to begin anew."
            )
        return None

    def _clean(self):
        """Removes files of checkpoints that a kill left incomplete."""
        for path in filesystem.find_files(self.folder, f"{PREFIX}-*"):
            stem = re.sub(rf"({re.escape(DATA_ENDING)}|{MARK})$", "", path)
            is_alone = stem != path and not filesystem.exists(f"{stem}.index")
            if ".writing-" in os.path.basename(path) or is_alone:
                filesystem.remove(path)

    def restore(self, prefix: str) -> None:
        """Restores every variable from one checkpoint of this training."""
        restore(self.variables, read_checkpoint(prefix), prefix)

    def keep_best(self, prefix: str) -> None:
        """Copies a checkpoint to `model.ckpt-best`."""
        copy_checkpoint(prefix, self.prefix("best"))

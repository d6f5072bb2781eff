"""Digests of files and data, which tell whether a result is still valid."""

import functools
import os

from albert_tf import filesystem
from albert_tf.data import table_tasks

# Once for each file: texts may be large.
digest_file = functools.cache(filesystem.compute_digest)


def digest_data(path):
    """Returns digests of a file, or by name of all files in a folder."""
    if not filesystem.is_folder(path):
        return digest_file(path)
    return {
        name: digest_data(os.path.join(path, name))
        for name in filesystem.list_folder(path)
    }


def digest_task(settings):
    """Returns digests in place of the paths among a task's flags.

    Only the task's own files in --data_dir count: the folder may also have
    other tasks of GLUE.
    """
    replaced: dict = {}
    if path := settings.get("task_config"):
        replaced["task_config"] = digest_file(path)
    task = table_tasks.choose_task(settings.get("task_name"), path)
    paths = {
        name: os.path.join(settings["data_dir"], name)
        for name in {table.file.split("/")[0] for table in task.tables}
    }
    replaced["data_dir"] = {
        name: digest_data(path)
        for name, path in paths.items()
        if filesystem.exists(path)
    }
    return replaced

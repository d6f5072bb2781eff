"""Digests of files and data, which tell whether a result is still valid."""

import functools
import hashlib
import os

from albert_tf import filesystem
from albert_tf.data import table_tasks


@functools.cache
def digest_file(path):
    """Returns the SHA-256 of a file's content, in hexadecimal."""
    digest = hashlib.sha256()
    with filesystem.open_file(path) as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


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
    replaced = {}
    if path := settings.get("task_config"):
        replaced["task_config"] = digest_file(path)
        task = table_tasks.read_task_config(path)
    else:
        task = table_tasks.GLUE[settings["task_name"].lower()]
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

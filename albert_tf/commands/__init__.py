"""The commands: the flags of each, and the module that implements it.

Each module here ends with its `COMMAND`, whose two values `flags.launch` takes:
the name of a module with the function `run`, and the class of its flags.
"""

import importlib


def find(name: str) -> tuple[str, type]:
    """Returns the `COMMAND` of a command."""
    return importlib.import_module(f"{__name__}.{name}").COMMAND

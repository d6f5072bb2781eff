"""Packages that only some programs need, and only where flags ask for them."""


def import_text_serving(wanted_by):
    """Returns the module `text_serving`, which needs tensorflow-text.

    Args:
      wanted_by: the flag that asks for it, and how to do without.

    Raises:
      ImportError: if tensorflow-text is not there.
    """
    try:
        from albert_tf.export import text_serving
    except ImportError as error:
        raise ImportError(
            f"{wanted_by} needs tensorflow-text ({error}): "
            "pip install 'albert_tf[text]'."
        ) from error
    return text_serving

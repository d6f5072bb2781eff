"""ALBERT in TensorFlow 2: pretraining, fine-tuning and export."""

import os
import sys

__version__ = "0.1.0"


def _choose_backend():
    """Makes Keras compute with TensorFlow, whatever its settings say.

    Raises:
      ImportError: if Keras was imported with another backend before.
    """
    keras = sys.modules.get("keras")
    if keras is not None and hasattr(keras, "backend"):
        found = keras.backend.backend()
        if found != "tensorflow":
            raise ImportError(
                f"Keras was imported with the backend {found!r}; ALBERT needs "
                "'tensorflow'. Import albert_tf first, or set "
                "KERAS_BACKEND=tensorflow."
            )
    wanted = os.environ.get("KERAS_BACKEND", "tensorflow")
    if wanted != "tensorflow":
        print(
            f"KERAS_BACKEND={wanted} is not taken: ALBERT needs the backend "
            "tensorflow.",
            file=sys.stderr,
        )
    # Set, it comes before ~/.keras/keras.json.
    os.environ["KERAS_BACKEND"] = "tensorflow"


_choose_backend()

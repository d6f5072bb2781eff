"""ALBERT in TensorFlow 2: pretraining, fine-tuning and export."""

import importlib
import os
import sys

__version__ = "0.1.0"

# Public name -> module that defines it, imported on first use.
_MODULES = {
    "AlbertConfig": "model.config",
    "AlbertEncoder": "model.modeling",
    "named_weights": "model.modeling",
    "AlbertForPreTraining": "model.heads",
    "AlbertClassifier": "model.heads",
    "AlbertMultipleChoice": "model.heads",
    "AlbertSpans": "model.span_heads",
    "AlbertConditionalSpans": "model.span_heads",
    "build_tokenizer": "text.tokenization",
    "read_pretrained": "weights.pretrained",
    "build_model": "weights.pretrained",
    "write_pretrained": "weights.pretrained",
    "build_optimizer": "training.optimization",
    "build_schedule": "training.optimization",
    "build_strategy": "training.distribution",
    "Session": "training.session",
    "FineTuning": "tasks.finetuning",
    "Recipe": "tasks.finetuning",
    "Classification": "tasks.classification",
    "Answering": "tasks.squad",
    "MultipleChoice": "tasks.race",
}
__all__ = ["__version__", *_MODULES]


def __getattr__(name):
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_MODULES[name]}")
    return getattr(module, name)


def __dir__():
    return sorted({*globals(), *_MODULES})


def _choose_backend():
    """Selects Keras's TensorFlow backend, overriding the user's settings.

    Raises:
      ImportError: if Keras has already been imported with another backend.
    """
    keras = sys.modules.get("keras")
    if keras is not None and hasattr(keras, "backend"):
        name = keras.backend.backend()
        if name != "tensorflow":
            raise ImportError(
                f"Keras was imported with the backend {name!r}; albert_tf "
                "needs 'tensorflow'. Import albert_tf first, or set "
                "KERAS_BACKEND=tensorflow."
            )
    wanted = os.environ.get("KERAS_BACKEND", "tensorflow")
    if wanted != "tensorflow":
        print(
            f"KERAS_BACKEND={wanted} is ignored: albert_tf needs the backend "
            "tensorflow.",
            file=sys.stderr,
        )
    # The variable takes precedence over ~/.keras/keras.json.
    os.environ["KERAS_BACKEND"] = "tensorflow"


_choose_backend()

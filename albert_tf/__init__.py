"""ALBERT in TensorFlow 2: pretraining, fine-tuning and export."""

import importlib.util
import os
import platform
import sys
from typing import Any

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
    "AlbertTagger": "model.tag_heads",
    "AlbertVectors": "model.vector_heads",
    "build_tokenizer": "text.tokenization",
    "read_pretrained": "weights.pretrained",
    "build_model": "weights.pretrained",
    "write_pretrained": "weights.pretrained",
    "build_optimizer": "training.optimization",
    "build_schedule": "training.optimization",
    "build_strategy": "training.distribution",
    "Session": "training.session",
    "FineTuning": "tasks.finetuning",
    "Ensemble": "tasks.ensembles",
    "Recipe": "tasks.recipes",
    "Pretraining": "tasks.pretraining",
    "PretrainingRecipe": "tasks.recipes",
    "Classification": "tasks.classification",
    "Classifier": "inference.classifier",
    "Answerer": "inference.answerer",
    "FillMask": "inference.masks",
    "Embedder": "inference.embedder",
    "Tagger": "inference.tagger",
    "Answering": "tasks.squad",
    "MultipleChoice": "tasks.race",
    "Tagging": "tasks.tagging",
    "Vectors": "tasks.vectors",
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
    """Selects Keras's TensorFlow backend, or raises ImportError if too late."""
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


def _choose_products():
    """Lets oneDNN compute products on every x86 CPU, unless a user forbids it.

    By itself, TensorFlow uses it on Linux only on CPUs with instructions for
    neural networks (AVX-512 VNNI and later). docs/results.md has the gain on
    one with AVX2. TensorFlow reads the variable at its first operation.
    """
    if platform.machine() in ("x86_64", "AMD64"):
        os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")


class _SavedLayer:
    """Stands for a layer of a saved Keras model until one is loaded."""

    def __init__(self, name, module):
        self.name, self.module = name, f"{__name__}.{module}"

    def from_config(self, values):
        layer = getattr(importlib.import_module(self.module), self.name)
        return layer.from_config(values)


def _register_layers():
    """Lets `keras.models.load_model` find our layers.

    The decorator `register_keras_serializable` would only find those whose
    modules are imported already.
    """
    known = sys.modules["keras"].saving.get_custom_objects()
    layers = {n: m for n, m in _MODULES.items() if m.startswith("model.")}
    for name, module in {**layers, "HubEncoder": "export.hub"}.items():
        known.setdefault(f"{__name__}>{name}", _SavedLayer(name, module))


class _AfterKeras:
    """An import hook that registers our layers once the user imports Keras.

    Importing Keras here would add seconds to `import albert_tf`.
    """

    is_searching = False

    def find_spec(self, name, path=None, target=None):
        del path, target
        if name != "keras" or self.is_searching:
            return None
        # It may be asked for without an import, and again.
        self.is_searching = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.is_searching = False
        if spec and spec.loader:
            execute = spec.loader.exec_module

            def execute_and_register(module):
                execute(module)
                if self in sys.meta_path:
                    sys.meta_path.remove(self)
                _register_layers()

            loader: Any = spec.loader
            loader.exec_module = execute_and_register
        return spec


_choose_backend()
_choose_products()
if "keras" in sys.modules:
    _register_layers()
else:
    sys.meta_path.insert(0, _AfterKeras())

"""ALBERT in TensorFlow 2: pretraining, fine-tuning and export."""

__version__ = "0.1.0"

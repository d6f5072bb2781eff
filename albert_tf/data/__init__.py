"""Converts text to examples; independent of models and training."""

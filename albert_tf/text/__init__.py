"""Tokenizes and decodes text, in Python and as TensorFlow operations."""

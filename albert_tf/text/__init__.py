"""Text to pieces and back, in Python and as operations of TensorFlow."""

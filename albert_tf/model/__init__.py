"""The model: tensors in, tensors out; knows no file but its config."""

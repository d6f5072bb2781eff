"""Computes metrics of predictions from NumPy arrays."""

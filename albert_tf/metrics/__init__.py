"""Scores of predictions: NumPy in, numbers out."""

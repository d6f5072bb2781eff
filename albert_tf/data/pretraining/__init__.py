"""Converts text to pretraining records, and records to batches."""

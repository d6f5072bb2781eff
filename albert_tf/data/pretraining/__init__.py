"""Text to pretraining records, and records to batches."""

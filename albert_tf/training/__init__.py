"""The training loop, independent of tasks and flags."""

"""The loop and all around it; knows no task and no flag."""

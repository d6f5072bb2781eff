"""One module per script: from flags to data, task and training."""

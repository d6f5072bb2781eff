"""One module a script: from flags to data, task and training."""

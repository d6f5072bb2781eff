"""Programs for the command line: `python -m albert_tf.tools.NAME --help`."""

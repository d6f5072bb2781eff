"""Exports for TF Hub: albert_tf/commands/export_to_tfhub.py."""

from albert_tf import flags
from albert_tf.commands import export_to_tfhub

if __name__ == "__main__":
    flags.launch(*export_to_tfhub.COMMAND)

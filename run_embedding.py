"""Vectors of texts: albert_tf/commands/run_embedding.py."""

from albert_tf import flags
from albert_tf.commands import run_embedding

if __name__ == "__main__":
    flags.launch(*run_embedding.COMMAND)

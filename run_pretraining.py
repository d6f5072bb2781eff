"""Pretraining: albert_tf/commands/run_pretraining.py."""

from albert_tf import flags
from albert_tf.commands import run_pretraining

if __name__ == "__main__":
    flags.launch(*run_pretraining.COMMAND)

"""Records of text: albert_tf/commands/create_pretraining_data.py."""

from albert_tf import flags
from albert_tf.commands import create_pretraining_data

if __name__ == "__main__":
    flags.launch(*create_pretraining_data.COMMAND)

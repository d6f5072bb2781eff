"""Fine-tuning on SQuAD: albert_tf/commands/run_squad.py."""

from albert_tf import flags
from albert_tf.commands import run_squad

if __name__ == "__main__":
    flags.launch(*run_squad.COMMAND)

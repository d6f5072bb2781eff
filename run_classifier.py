"""Fine-tuning on tables of text: albert_tf/commands/run_classifier.py."""

from albert_tf import flags
from albert_tf.commands import run_classifier

if __name__ == "__main__":
    flags.launch(*run_classifier.COMMAND)

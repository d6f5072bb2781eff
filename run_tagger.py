"""Fine-tuning on words with tags: albert_tf/commands/run_tagger.py."""

from albert_tf import flags
from albert_tf.commands import run_tagger

if __name__ == "__main__":
    flags.launch(*run_tagger.COMMAND)

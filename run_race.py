"""Fine-tuning on RACE: albert_tf/commands/run_race.py."""

from albert_tf import flags
from albert_tf.commands import run_race

if __name__ == "__main__":
    flags.launch(*run_race.COMMAND)

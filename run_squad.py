"""Fine-tuning on SQuAD: albert_tf/commands/run_squad.py."""

from albert_tf.commands import run_squad

if __name__ == "__main__":
    run_squad.main()

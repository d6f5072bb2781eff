"""Pretraining: albert_tf/commands/run_pretraining.py."""

from albert_tf.commands import run_pretraining

if __name__ == "__main__":
    run_pretraining.main()

"""Pretraining: albert_tf/programs/run_pretraining.py."""

from albert_tf.programs import run_pretraining

if __name__ == "__main__":
    run_pretraining.main()

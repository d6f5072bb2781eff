"""Fine-tuning on SQuAD: albert_tf/programs/run_squad.py."""

from albert_tf.programs import run_squad

if __name__ == "__main__":
    run_squad.main()

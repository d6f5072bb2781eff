"""Fine-tuning on tables of text: albert_tf/programs/run_classifier.py."""

from albert_tf.programs import run_classifier

if __name__ == "__main__":
    run_classifier.main()

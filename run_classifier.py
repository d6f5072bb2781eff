"""Fine-tuning on tables of text: albert_tf/commands/run_classifier.py."""

from albert_tf.commands import run_classifier

if __name__ == "__main__":
    run_classifier.main()

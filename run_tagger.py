"""Fine-tuning on words with tags: albert_tf/commands/run_tagger.py."""

from albert_tf.commands import run_tagger

if __name__ == "__main__":
    run_tagger.main()

"""Vectors of texts: albert_tf/commands/run_embedding.py."""

from albert_tf.commands import run_embedding

if __name__ == "__main__":
    run_embedding.main()

"""Records of text: albert_tf/commands/create_pretraining_data.py."""

from albert_tf.commands import create_pretraining_data

if __name__ == "__main__":
    create_pretraining_data.main()

"""Records of text: albert_tf/programs/create_pretraining_data.py."""

from albert_tf.programs import create_pretraining_data

if __name__ == "__main__":
    create_pretraining_data.main()

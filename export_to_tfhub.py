"""Exports for TF Hub: albert_tf/programs/export_to_tfhub.py."""

from albert_tf.programs import export_to_tfhub

if __name__ == "__main__":
    export_to_tfhub.main()

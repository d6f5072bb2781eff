"""Turns text into pretraining records: masked n-grams and ordered segments.

The work is done in albert_tf/programs/create_pretraining_data.py.
"""

from albert_tf.programs import create_pretraining_data

if __name__ == "__main__":
    create_pretraining_data.main()

"""Fine-tunes and scores ALBERT on GLUE, or on any table of text.

The work is done in albert_tf/programs/run_classifier.py.
"""

from albert_tf.programs import run_classifier

if __name__ == "__main__":
    run_classifier.main()

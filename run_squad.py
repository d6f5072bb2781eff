"""Fine-tunes and scores ALBERT on SQuAD 1.1, 2.0 and what is written like it.

The work is done in albert_tf/programs/run_squad.py.
"""

from albert_tf.programs import run_squad

if __name__ == "__main__":
    run_squad.main()

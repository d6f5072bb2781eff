"""Fine-tunes and scores ALBERT on RACE.

The work is done in albert_tf/programs/run_race.py.
"""

from albert_tf.programs import run_race

if __name__ == "__main__":
    run_race.main()

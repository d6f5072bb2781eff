"""Fine-tuning on RACE: albert_tf/programs/run_race.py."""

from albert_tf.programs import run_race

if __name__ == "__main__":
    run_race.main()

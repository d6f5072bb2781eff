"""Kills programs and takes things from them; compares what they leave.

    python -m tests.faults --trials=100 --seed=0
    python -m tests.faults --only=run_classifier:before:3

Each trial starts a small job of a program, hurts it, runs the same command
again until it has ended well, and compares the result with that of a run to
which nothing happened: weights bit for bit, scores, predictions, records,
answers of SavedModels; and nothing half written may be left. Not for Windows;
a full disk needs the right to mount.
"""

import sys

from tests.faults import driver

if __name__ == "__main__":
    sys.exit(driver.main(sys.argv[1:]))

"""Chooses trials, runs them, and reports."""

import argparse
import collections
import itertools
import pathlib
import random
import shlex
import shutil
import tempfile
import time

from tests.faults import artifacts, jobs, processes, trials

# The fractional parts of its multiples are spread evenly.
GOLDEN_RATIO = (5**0.5 - 1) / 2


def run_reference(program, folder):
    """Runs a job to which nothing happens; returns its Reference."""
    job = jobs.JOBS[program]
    process = processes.start_workers(
        job.num_workers, job.words, folder, "reference"
    )
    process.wait(process.has_started)
    began = time.monotonic()
    status = process.wait()
    seconds = time.monotonic() - began
    for other in process.others:
        status = status or other.wait()
    if status:
        raise RuntimeError(f"{program} fails by itself:\n{process.output()}")
    home = folder / "home"
    found = processes.call(artifacts.describe, home)
    left = [name for name, text in found.items() if text == artifacts.LEFT]
    if left:
        raise RuntimeError(f"{program} by itself leaves {left}.")
    num_bytes = sum(
        -(-path.stat().st_size // 4096) * 4096
        for path in home.rglob("*")
        if path.is_file()
    )
    shutil.rmtree(home)
    return trials.Reference(found, process.changes(), seconds, num_bytes)


def plan(num_trials, seed, programs, kinds, few):
    """Returns (program, kind, number) of trials, spread evenly.

    Any first few are of many programs and kinds. A number tells trials of one
    program and kind apart.

    Args:
      num_trials: how many.
      seed: decides what comes after each pair was there once.
      programs: their names.
      kinds: names of what happens to them.
      few: programs with which few is tried.
    """
    pairs = [
        (program, kinds[(i + j) % len(kinds)])
        for i in range(len(kinds))
        for j, program in enumerate(programs)
    ]
    once = [
        (p, kind) for p, kind in pairs if p not in few or kind in trials.FEW
    ]
    more = [
        pair
        for pair in once
        if pair[0] not in few and pair[1] in trials.ENDLESS
    ]
    random.Random(seed).shuffle(more)
    counts = collections.Counter()
    chosen = []
    for pair in itertools.islice(
        itertools.chain(once, itertools.cycle(more)), num_trials
    ):
        chosen.append((*pair, counts[pair]))
        counts[pair] += 1
    return chosen


def place_of(program, kind, number, seed):
    """Where in a job it is hurt, from 0 to 1; numbers spread evenly."""
    first = random.Random(f"{seed} {program} {kind}").random()
    return (first + number * GOLDEN_RATIO) % 1


def format_table(outcomes):
    """Returns a table of programs and kinds: how many of how many were equal.

    Args:
      outcomes: dict from (program, kind) to a list of whether it was well.
    """
    programs = list(dict.fromkeys(program for program, _ in outcomes))
    kinds = [k for k in trials.KINDS if any(k == kind for _, kind in outcomes)]
    width = max(map(len, programs))
    lines = [" " * width + "".join(f"{kind:>10}" for kind in kinds)]
    for program in programs:
        cells = [outcomes.get((program, kind), []) for kind in kinds]
        texts = [f"{sum(c)}/{len(c)}" if c else "-" for c in cells]
        lines.append(
            f"{program:{width}}" + "".join(f"{text:>10}" for text in texts)
        )
    return "\n".join(lines)


class Driver:
    """Runs trials, and reports.

    Args:
      folder: where they work.
      seed: decides where in a job it is hurt.
      keeps_failed: whether the folders of trials that failed stay.
    """

    def __init__(self, folder, seed, keeps_failed=False):
        self.folder, self.seed = folder, seed
        self.keeps_failed = keeps_failed
        self.references = {}
        self.outcomes = collections.defaultdict(list)
        self.failures, self.skipped = [], []

    def run(self, chosen):
        """Runs all trials of a list of (program, kind, number)."""
        processes.call(jobs.write_inputs, self.folder / "inputs")
        for program in dict.fromkeys(program for program, *_ in chosen):
            reference = run_reference(program, self.folder / "reference")
            self.references[program] = reference
            print(
                f"{program}: {len(reference.changes)} changes of files in "
                f"{reference.seconds:.1f} s",
                flush=True,
            )
            shutil.rmtree(self.folder / "reference")
        began = time.monotonic()
        for number, trial in enumerate(chosen, 1):
            said = self.run_one(*trial)
            seconds = time.monotonic() - began
            left = seconds / number * (len(chosen) - number)
            print(
                f"{number}/{len(chosen)} {':'.join(map(str, trial))} {said} "
                f"({seconds / 60:.1f} min, {left / 60:.1f} min left)",
                flush=True,
            )

    def run_one(self, program, kind, number):
        """Runs a trial; returns what to say of it."""
        folder = self.folder / "trial"
        place = place_of(program, kind, number, self.seed)
        try:
            trial = trials.run_trial(
                program, kind, self.references[program], folder, place
            )
        except trials.Skipped as reason:
            self.skipped.append((program, kind, str(reason)))
            shutil.rmtree(folder, ignore_errors=True)
            return f"skipped: {reason}"
        self.outcomes[program, kind].append(not trial.complaints)
        said = f"{'FAILED' if trial.complaints else 'equal'}, {trial.what}"
        if trial.complaints:
            name = f"{program}:{kind}:{number}"
            self.failures.append((name, trial.what, trial.complaints))
            said += "".join(f"\n    {text}" for text in trial.complaints)
            if self.keeps_failed:
                kept = self.folder / f"failed-{len(self.failures)}"
                folder.rename(kept)
                return f"{said}\n    kept in {kept}"
        shutil.rmtree(folder)
        return said

    def report(self):
        """Prints the table, and how to repeat what failed."""
        if self.outcomes:
            print(format_table(self.outcomes))
        for reason, count in collections.Counter(
            f"{kind}: {reason}" for _, kind, reason in self.skipped
        ).items():
            print(f"Skipped {count} of {reason}.")
        num_trials = sum(map(len, self.outcomes.values()))
        print(f"{num_trials} trials, {len(self.failures)} failed.")
        for name, what, complaints in self.failures:
            print(f"\n{name}, {what}:")
            for complaint in complaints:
                print(f"  {complaint}")
            print(
                "  python -m tests.faults "
                f"--seed={self.seed} --only={shlex.quote(name)} --keep"
            )


def parse_arguments(words):
    """Returns the arguments of the command line."""
    parser = argparse.ArgumentParser(
        "python -m tests.faults",
        description="Kills programs and takes things from them; compares what "
        "they leave with what they leave otherwise.",
    )
    parser.add_argument("--trials", type=int, default=100, help="how many")
    parser.add_argument(
        "--seed", type=int, default=0, help="decides where a job is hurt"
    )
    parser.add_argument(
        "--programs",
        default=",".join(jobs.JOBS),
        help="some of the programs, with commas between",
    )
    parser.add_argument(
        "--kinds",
        default=",".join(trials.KINDS),
        help="some of what can happen, with commas between",
    )
    parser.add_argument(
        "--only", help="trials PROGRAM:KIND:NUMBER, with commas between"
    )
    parser.add_argument(
        "--keep", action="store_true", help="keep what failed trials left"
    )
    args = parser.parse_args(words)
    for name, known in (("programs", jobs.JOBS), ("kinds", trials.KINDS)):
        values = getattr(args, name).split(",")
        if unknown := set(values) - known.keys():
            parser.error(f"--{name}: {unknown}; known: {list(known)}")
        setattr(args, name, values)
    return args


def main(words):
    """Runs the trials of a command line; returns the exit status."""
    args = parse_arguments(words)
    if args.only:
        parts = (name.rsplit(":", 2) for name in args.only.split(","))
        chosen = [(p, kind, int(number)) for p, kind, number in parts]
    else:
        slow = [name for name, job in jobs.JOBS.items() if job.is_slow]
        chosen = plan(args.trials, args.seed, args.programs, args.kinds, slow)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="faults-"))
    driver = Driver(folder, args.seed, args.keep)
    try:
        driver.run(chosen)
        driver.report()
    finally:
        if not (driver.failures and args.keep):
            shutil.rmtree(folder, ignore_errors=True)
    return 1 if driver.failures else 0

"""Grids of models that differ in one thing each: a paper's tables in small.

A grid is a JSON file:

  title: what it is about.
  config: fields of an AlbertConfig.
  phases: pretraining runs, each from the weights of the one before; a phase has
    `records` (flags of create_pretraining_data) and `flags` (of
    run_pretraining).
  held_out: flags of create_pretraining_data for the records to score on.
  seeds: random seeds of the repetitions.
  tasks: name -> flags of run_classifier.
  rows: each with a `name`, and what it changes: `config`; `phases`, a list as
    long as the grid's, or empty for random weights, which are only fine-tuned;
    and `tasks`. `paper` has the paper's results by column.
  base: name of another file in the same folder, which has what is missing.
"""

import dataclasses
import hashlib
import json
import os
import statistics
from typing import NamedTuple

from albert_tf import filesystem, settings
from albert_tf.model.config import AlbertConfig

KEYS = "title", "config", "phases", "held_out", "seeds", "tasks", "rows"
PARTS = "records", "flags"
# Flags of run_pretraining that do not change the final weights.
WITHOUT_EFFECT = "save_checkpoints_steps", "keep_checkpoint_max"


class Phase(NamedTuple):
    """One pretraining run.

    Attributes:
      records: dict from flag of create_pretraining_data to value.
      flags: dict from flag of run_pretraining to value.
    """

    records: dict
    flags: dict

    def count_tokens(self) -> int:
        """Returns the number of tokens of all steps, padding included."""
        return (
            self.flags["num_train_steps"]
            * self.flags["train_batch_size"]
            * self.records["max_seq_length"]
        )


@dataclasses.dataclass(frozen=True)
class Row:
    """A model to be trained.

    Attributes:
      name: name in tables.
      config: its AlbertConfig.
      phases: its pretraining runs, in this order.
      tasks: dict from name to a dict of flags that differ from the grid's.
      paper: dict from column to the paper's result.
    """

    name: str
    config: AlbertConfig
    phases: tuple[Phase, ...]
    tasks: dict[str, dict]
    paper: dict

    def identify(self, num_phases: int, *others) -> str:
        """Returns a digest of the first phases of the row.

        Rows and grids with the same first phases share it, so that nothing is
        trained twice. It includes whatever else the result depends on.
        """
        phases = []
        for phase in self.phases[:num_phases]:
            flags = phase.flags.items()
            used = {n: v for n, v in flags if n not in WITHOUT_EFFECT}
            phases.append([phase.records, used])
        return identify(self.config.to_dict(), phases, others)

    def count_tokens(self) -> int:
        """Returns the number of tokens of all phases, padding included."""
        return sum(phase.count_tokens() for phase in self.phases)


@dataclasses.dataclass(frozen=True)
class Grid:
    """A parsed grid; its fields are described at the top of the module."""

    title: str
    rows: tuple[Row, ...]
    held_out: dict
    seeds: tuple[int, ...]
    tasks: dict[str, dict]


def read_grid(path: filesystem.Path) -> Grid:
    """Reads a grid."""
    values = filesystem.read_json(path)
    if (name := values.pop("base", None)) is not None:
        base = os.path.join(os.path.dirname(path), str(name))
        values = filesystem.read_json(base) | values
    try:
        return _parse(values)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path} is not a grid: {type(error).__name__}: {error}"
        ) from error


def _parse(values):
    check_keys(values, KEYS, "the grid")
    title, seeds = values["title"], values["seeds"]
    if not isinstance(title, str):
        raise ValueError(f"title is {title!r}; wanted text")
    if not seeds or not all(
        type(s) is int and 0 <= s <= settings.MAX_SEED for s in seeds
    ):
        raise ValueError(f"seeds is {seeds!r}; wanted a list of numbers")
    if not values["phases"]:
        raise ValueError("phases is empty; wanted one or more trainings")
    rows = tuple(_parse_row(row, values) for row in values["rows"])
    names = [row.name for row in rows]
    if not rows or len(set(names)) < len(names):
        raise ValueError(f"the names of rows, {names}, must differ")
    return Grid(
        title,
        rows,
        _parse_flags(values["held_out"], "held_out"),
        tuple(dict.fromkeys(seeds)),
        _parse_tasks(values["tasks"], "the grid"),
    )


def _parse_row(row, values):
    known = "name", "config", "phases", "tasks", "paper"
    check_keys(row, known, "a row", optional=known[1:])
    changes = row.get("phases", [{}] * len(values["phases"]))
    where, paper = f"row {row['name']!r}", row.get("paper", {})
    if not isinstance(row["name"], str):
        raise ValueError(f"{where}: wanted text as its name")
    if changes and len(changes) != len(values["phases"]):
        raise ValueError(
            f"{where} changes {len(changes)} phases of {len(values['phases'])}"
        )
    if not all(isinstance(value, int | float) for value in paper.values()):
        raise ValueError(f"{where}: paper is {paper}; wanted numbers")
    phases = []
    for phase, change in zip(values["phases"], changes, strict=bool(changes)):
        check_keys(phase, PARTS, "a phase")
        check_keys(change, PARTS, where, optional=PARTS)
        parts = [phase[part] | change.get(part, {}) for part in PARTS]
        phases.append(Phase(*(_parse_flags(part, where) for part in parts)))
    config = AlbertConfig.from_dict(values["config"] | row.get("config", {}))
    tasks = _parse_tasks(row.get("tasks", {}), where)
    if unknown := sorted(tasks.keys() - values["tasks"]):
        raise ValueError(
            f"{where} changes the tasks {unknown}; the grid has "
            f"{sorted(values['tasks'])}"
        )
    parsed = Row(row["name"], config, tuple(phases), tasks, paper)
    parsed.count_tokens()  # Raises KeyError if a size is missing.
    return parsed


def _parse_tasks(tasks, where):
    return {
        name: _parse_flags(flags, f"{where}, task {name!r}")
        for name, flags in tasks.items()
    }


def _parse_flags(flags, where):
    """Returns a copy of flags, after a check of their types."""
    for name, value in flags.items():
        if not isinstance(value, str | int | float):
            raise ValueError(
                f"{where}: {name} is {value!r}; wanted text, a number, true "
                "or false"
            )
    return dict(flags)


def check_keys(values, known, where, optional=()):
    """Raises ValueError if a dict has other keys than wanted."""
    if not isinstance(values, dict):
        raise ValueError(f"{where} is {values!r:.80}; wanted an object")
    wrong = values.keys() ^ set(known)
    if wrong := wrong - set(optional):
        raise ValueError(
            f"{where} has keys {sorted(values)}; wanted {list(known)}. Missing "
            f"or unknown: {sorted(wrong)}"
        )


def identify(*described) -> str:
    """Returns a digest of values that can be written as JSON."""
    text = json.dumps(described, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def summarize(values: list[float]) -> dict:
    """Returns mean, standard deviation and number of repeated results."""
    return {
        "mean": statistics.fmean(values),
        "deviation": statistics.stdev(values) if len(values) > 1 else None,
        "count": len(values),
    }

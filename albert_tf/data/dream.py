"""Reads DREAM and C3: questions with two to six options about dialogues.

A file is a JSON list of passages, each a list of its turns, its questions and
its id. C3 has dialogues in `c3-d-*.json`, and other texts, as a single turn, in
`c3-m-*.json`.
"""

import os

from albert_tf import filesystem
from albert_tf.data import race, tables

FORMAT = (
    'Wanted the format of DREAM: a list of [[turn, ...], [{"question": ..., '
    '"choice": [option, ...], "answer": option}, ...], id].'
)


def find_files(folder: filesystem.Path, part: str) -> list[str]:
    """Returns the paths of a part, such as dev.json or c3-d-dev.json."""
    return [
        os.path.join(folder, name)
        for name in sorted(race.list_shown(folder))
        if name == f"{part}.json" or name.endswith(f"-{part}.json")
    ]


def read_dream(paths: list[str]) -> list[race.Question]:
    """Reads the questions of files in DREAM's format.

    Returns:
      List of Question, whose level is the name of the file without its ending.

    Raises:
      ValueError: if a file has another format or no questions, or if two
        passages of a file have the same id.
    """
    questions = []
    for path in paths:
        found = _read_file(path)
        if not found:
            raise ValueError(f"{path} has no questions. Was it truncated?")
        race.check_ids(path, found)
        questions += found
    return questions


def _read_file(path):
    passages = filesystem.parse_any_json(tables.read_text(path), path)
    if not isinstance(passages, list):
        kind = type(passages).__name__
        raise ValueError(f"{path}: found JSON of type {kind}. {FORMAT}")
    level = os.path.splitext(os.path.basename(path))[0]
    questions = []
    for number, passage in enumerate(passages, 1):
        where = f"{path}, passage {number}"
        try:
            turns, asked, name = _split(passage)
            race.check_name(name)
            texts = [row["question"] for row in asked]
            options = [
                tables.typed("choice", row["choice"], list) for row in asked
            ]
            letters = [
                _letter_of(row.get("answer"), row["choice"]) for row in asked
            ]
        except (KeyError, TypeError) as error:
            problem = f"lacks {error}" if isinstance(error, KeyError) else error
            raise ValueError(f"{where}: {problem}. {FORMAT}") from error
        questions += race.build_questions(
            where, f"{level}/{name}", "\n".join(turns), texts, options, letters
        )
    return questions


def _split(passage):
    """Returns turns, questions and id of a passage; TypeError for others."""
    if len(tables.typed("the passage", passage, list)) != 3:
        raise TypeError(f"the passage: found {len(passage)} parts")
    turns, asked, name = passage
    for turn in tables.typed("the turns", turns, list):
        tables.typed("a turn", turn, str)
    for row in tables.typed("the questions", asked, list):
        tables.typed("a question", row, dict)
    return turns, asked, name


def _letter_of(answer, options):
    """Returns the letter of the right option; None for an unknown one."""
    if answer is None:
        return None
    if answer not in options:
        raise TypeError(
            f"answer: found {answer!r:.60}, wanted one of {options!r:.200}"
        )
    index = options.index(answer)
    return race.LETTERS[index : index + 1]

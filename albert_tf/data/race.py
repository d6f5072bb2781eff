"""Reads RACE: questions about passages, each with four options.

Data in its format may have two to six options, in one file, too.

Shapes: N questions, C choices: the largest number of options.
"""

import logging
import os
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from albert_tf import filesystem
from albert_tf.data import examples, tables
from albert_tf.text import normalization, tokenization

LEVELS = ("middle", "high")
LETTERS = "ABCDEF"
# What NFKD makes "_".
BLANK = "[_\uff3f\ufe33\ufe34\ufe4d-\ufe4f]+"
MIN_OPTIONS = 2


class Question(NamedTuple):
    """A question.

    Attributes:
      id: "level/passage id/index of the question in its passage".
      article: the passage.
      choices: at most C texts, the question combined with each option.
      label: index of the correct choice; None if the file has no answers.
    """

    id: str
    article: str
    choices: tuple[str, ...]
    label: int | None


def read_race(
    folder: filesystem.Path, levels: Sequence[str] = LEVELS
) -> list[Question]:
    """Reads the questions of a split of RACE.

    Each level has a folder, `middle` or `high`, of which all files *.txt are
    read. A passage is a JSON object: one per file, as RACE is distributed, or
    one per line, as in the release's all.txt. If all.txt exists, the others are
    ignored. A warning names what is not read.

    Returns:
      List of Question, in order of levels and file names.

    Raises:
      FileNotFoundError: if a level has no file.
      ValueError: if a file is not in RACE's format or has no questions, or if
        two passages have the same id.

    Source: race_utils.py, which reads all.txt only.
    """
    questions = []
    unread = [n for n in list_shown(folder) if n not in LEVELS]
    for level in levels:
        path = os.path.join(folder, level)
        found = list_shown(path)
        names = [name for name in found if name.lower().endswith(".txt")]
        if "all.txt" in names:
            names = ["all.txt"]
        if not names:
            raise FileNotFoundError(
                f"There is no *.txt in {path}. Wanted RACE's own folders: "
                "{train,dev,test}/{middle,high}; or DREAM's files: "
                "{train,dev,test}.json."
            )
        for name in names:
            questions += _read_file(os.path.join(path, name), level)
        unread += [f"{level}/{n}" for n in found if n not in {*names}]
    if unread:
        logging.warning(
            "%s: not read: %s.", folder, filesystem.list_briefly(unread)
        )
    check_ids(folder, questions)
    return questions


def list_shown(folder):
    """Returns the names in a folder, but not such as ._1.txt of macOS."""
    names = filesystem.list_folder(folder)
    return [name for name in names if not name.startswith(".")]


def check_ids(folder: filesystem.Path, questions: list[Question]):
    """Raises ValueError if two questions of a folder have the same id."""
    if repeated := tables.find_repeated(q.id for q in questions):
        raise ValueError(
            f"{folder} has the question {repeated} twice; predictions are "
            "identified by level, passage id and question index. Were files "
            "copied or concatenated?"
        )


def _read_file(path, level):
    """Reads the questions of a file of passages."""
    questions = []
    text = tables.read_text(path)
    # One object on several lines, or one on each.
    is_one = re.match(r"\s*{\s*\n", text)
    lines = [text] if is_one else text.split("\n")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            passage = filesystem.parse_json(line, where)
            name = passage.get("id")
            if name is None:  # Passages of the same file get different names.
                name = os.path.basename(path) + f":{number}" * (number > 1)
            check_name(name)
            article = tables.typed("article", passage["article"], str)
            texts = tables.typed("questions", passage["questions"], list)
            options = tables.typed("options", passage["options"], list)
            for row in options:
                tables.typed("one of the options", row, list)
            answers = passage.get("answers")
            if answers is None:
                answers = [None] * len(texts)
            tables.typed("answers", answers, list)
        except (KeyError, TypeError) as error:
            problem = f"lacks {error}" if isinstance(error, KeyError) else error
            raise ValueError(
                f"{where}: {problem}. Wanted RACE's format: an object with "
                "article, questions, options and answers."
            ) from error
        questions += build_questions(
            where, f"{level}/{name}", article, texts, options, answers
        )
    if not questions:
        raise ValueError(f"{path} has no questions. Was it truncated?")
    return questions


def build_questions(
    where: str, name: str, article: str, texts: list, options: list, answers
) -> list[Question]:
    """Returns the questions about a passage.

    Args:
      where: file and line of the passage, for messages.
      name: "level/passage id".
      article: the passage.
      texts: M questions.
      options: M lists of options.
      answers: M letters, None for an unknown one.

    Raises:
      ValueError: if texts, options and answers are inconsistent.
    """
    _check_passage(where, texts, options, answers)
    shown = [article, *texts, *sum(options, [])]
    if any(map(normalization.is_blank, shown)):
        logging.warning(
            "%s: the article, a question or an option is empty.", where
        )
    return [
        Question(
            f"{name}/{i}",
            article,
            tuple(join_choice(text, option) for option in options[i]),
            None if answers[i] is None else LETTERS.index(answers[i]),
        )
        for i, text in enumerate(texts)
    ]


def check_name(name):
    """Raises TypeError unless a passage's id can be written to a table."""
    is_name = isinstance(name, str | int) and not isinstance(name, bool)
    if not is_name or set(str(name)) & set("\t\r\n"):
        raise TypeError(
            f"id: found {name!r:.60}, wanted a string without tabs and line "
            "breaks"
        )


def _check_passage(where, texts, options, answers):
    """Raises ValueError if questions, options and answers are inconsistent."""
    parts = {"questions": texts, "options": options, "answers": answers}
    sizes = {name: len(part) for name, part in parts.items()}
    if len(set(sizes.values())) > 1:
        raise ValueError(f"{where}: found {sizes}; wanted equal numbers.")
    for i, row in enumerate(options):
        if not MIN_OPTIONS <= len(row) <= len(LETTERS):
            raise ValueError(
                f"{where}: question {i} has {len(row)} options, wanted "
                f"{MIN_OPTIONS} to {len(LETTERS)}."
            )
        letters = LETTERS[: len(row)]
        if answers[i] not in (None, *letters):
            raise ValueError(
                f"{where}: the answer of question {i} is {answers[i]!r}, "
                f"wanted a letter of {letters}."
            )
        if not all(isinstance(text, str) for text in (texts[i], *row)):
            raise ValueError(
                f"{where}: question {i} and its options must be strings."
            )


def join_choice(question: str, option: str) -> str:
    """Inserts an option into the question's blank, or appends it.

    Source: race_utils.py, which replaces each "_" of "___". It normalizes both
    before, so that characters such as the full-width "＿" are blanks, too.
    """
    question, option = question.strip(), option.strip()
    joined, num_blanks = re.subn(BLANK, lambda _: option, question)
    return joined if num_blanks else f"{question} {option}"


def encode_race(
    questions: list[Question],
    tokenizer: tokenization.Tokenizer,
    max_seq_length: int,
    max_qa_length: int,
) -> examples.Examples:
    """Encodes each question as C sequences [CLS] article [SEP] choice [SEP].

    Truncation keeps the last tokens of a choice and the first of an article.
    A question with fewer options than others ends in sequences without tokens.

    Returns:
      Examples with num_choices C and the array `label_ids` [N] int32, -1 for
      unknown answers.

    Source: race_utils.py, `convert_single_example`.
    """
    cls_id, sep_id = tokenizer.cls_id, tokenizer.sep_id
    # Several questions share an article, which is tokenized once.
    texts = list(dict.fromkeys(question.article for question in questions))
    articles = dict(
        zip(texts, examples.encode_texts(tokenizer, texts), strict=True)
    )
    choices = examples.encode_texts(
        tokenizer, [text for q in questions for text in q.choices]
    )
    num_tokens = [len(choice) for choice in choices]
    # The option is at the end of a choice; only it differs between choices.
    choices = [choice[-max_qa_length:] for choice in choices]
    rows = [articles[q.article] for q in questions for _ in q.choices]
    pairs = (
        (
            [cls_id, *article[: max_seq_length - len(choice) - 3], sep_id],
            [*choice, sep_id],
        )
        for article, choice in zip(rows, choices, strict=True)
    )
    sizes = [len(a) + len(c) + 3 for a, c in zip(rows, choices, strict=True)]
    truncation = (
        examples.describe_truncation("choices", num_tokens, max_qa_length),
        examples.describe_truncation("sequences", sizes, max_seq_length),
    )
    labels = [-1 if q.label is None else q.label for q in questions]
    ids, lengths, first_lengths = examples.join_pairs(pairs)
    counts = np.array([len(q.choices) for q in questions])
    num_choices = int(counts.max())
    is_option = np.arange(num_choices) < counts[:, None]  # [N, C]
    return examples.Examples(
        ids,
        _pad_options(lengths, is_option),
        _pad_options(first_lengths, is_option),
        {"label_ids": np.array(labels, np.int32)},
        num_choices=num_choices,
        truncation=" ".join(filter(None, truncation)),
    )


def _pad_options(lengths, is_option):
    """Returns the lengths of all options as [N * C], with 0 for padding."""
    padded = np.zeros(is_option.shape, np.int32)  # [N, C]
    padded[is_option] = lengths
    return padded.ravel()

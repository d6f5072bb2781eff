"""RACE: questions about passages, each with four options.

Shapes: N questions, C = 4 choices.
"""

import json
import os
import re
from typing import NamedTuple

import numpy as np

from albert_tf import filesystem
from albert_tf.data.examples import Examples

LEVELS = ("middle", "high")
LETTERS = "ABCD"


class Question(NamedTuple):
    """A question.

    Attributes:
      id: level, passage's id and number of the question from 0, with slashes
        between.
      article: the passage.
      choices: C texts: the question with each option in its place.
      label: number of the right one from 0; None where the file does not say.
    """

    id: str
    article: str
    choices: tuple
    label: int | None


def read_race(folder, levels=LEVELS):
    """Reads the questions of a part of RACE.

    Args:
      folder: with the folders `middle` and `high`. In these, all files *.txt
        are read: one JSON object a passage, as RACE is shipped, or several in
        a file, one a line, as the release's all.txt; where that is, it alone.
      levels: of LEVELS, those that are wanted.

    Returns:
      List of Question, in order of levels and file names.

    Raises:
      FileNotFoundError: if a level has no file.
      ValueError: if a file is not as RACE's are, or holds no passage.

    Source: race_utils.py, which reads all.txt only.
    """
    questions = []
    for level in levels:
        path = os.path.join(folder, level)
        names = filesystem.list_folder(path)
        names = sorted(name for name in names if name.endswith(".txt"))
        if "all.txt" in names:
            names = ["all.txt"]
        if not names:
            raise FileNotFoundError(
                f"There is no *.txt in {path}. Wanted RACE's own folders: "
                "{train,dev,test}/{middle,high}."
            )
        for name in names:
            questions += _read_file(os.path.join(path, name), level)
    return questions


def _read_file(path, level):
    """The questions of a file of passages."""
    questions = []
    lines = filesystem.read_file(path).decode("utf-8-sig").split("\n")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            passage = json.loads(line)
            name = passage.get("id", os.path.basename(path))
            article, texts = passage["article"], passage["questions"]
            options, answers = passage["options"], passage.get("answers")
            if not isinstance(article, str):
                raise TypeError(f"article is {article!r:.60}, wanted a string")
        except ValueError as error:
            raise ValueError(f"{where} is not JSON: {error}.") from error
        except (KeyError, TypeError, AttributeError) as error:
            problem = f"lacks {error}" if isinstance(error, KeyError) else error
            raise ValueError(
                f"{where}: {problem}. Wanted RACE's form: an object with "
                "article, questions, options and answers."
            ) from error
        _check_passage(where, texts, options, answers)
        questions += [
            Question(
                f"{level}/{name}/{i}",
                article,
                tuple(join_choice(text, option) for option in options[i]),
                None if answers is None else LETTERS.index(answers[i]),
            )
            for i, text in enumerate(texts)
        ]
    if not questions:
        raise ValueError(f"{path} has no questions. Was it cut off?")
    return questions


def _check_passage(where, texts, options, answers):
    """Raises ValueError if questions, options and answers do not fit."""
    sizes = {
        name: len(values)
        for name, values in (
            ("questions", texts),
            ("options", options),
            ("answers", answers),
        )
        if values is not None
    }
    if len(set(sizes.values())) > 1:
        raise ValueError(f"{where}: numbers of {sizes} differ.")
    for i, row in enumerate(options):
        if len(row) != len(LETTERS):
            raise ValueError(
                f"{where}: question {i} has {len(row)} options, wanted "
                f"{len(LETTERS)}."
            )
        answer = None if answers is None else answers[i]
        if answer not in (None, *LETTERS) or answer == "":
            raise ValueError(
                f"{where}: the answer of question {i} is {answer!r}, wanted a "
                f"letter of {LETTERS}."
            )
        if not all(isinstance(text, str) for text in (texts[i], *row)):
            raise ValueError(
                f"{where}: question {i} or its options are not strings."
            )


def join_choice(question, option):
    """Puts an option in the place of a question's blank, or behind it.

    Source: race_utils.py, which puts it in the place of each "_" of "___".
    """
    if "_" in question:
        return re.sub("_+", lambda _: option, question)
    return f"{question} {option}"


def encode_race(questions, tokenizer, max_seq_length, max_qa_length):
    """Encodes questions as C times [CLS] article [SEP] choice [SEP].

    Of a choice the last tokens are kept, of an article the first.

    Args:
      questions: list of Question.
      tokenizer: a `tokenization.Tokenizer`.
      max_seq_length: tokens of a sequence, at most.
      max_qa_length: tokens of a choice, at most.

    Returns:
      Examples with num_choices C and the array `label_ids` [N] int32, -1
      where the answer is not known.

    Source: race_utils.py, `convert_single_example`.
    """
    articles = {question.article: None for question in questions}
    rows = tokenizer.encode_batch(list(articles), os.cpu_count() or 1)
    articles = dict(zip(articles, rows, strict=True))
    choices = tokenizer.encode_batch(
        [text for question in questions for text in question.choices],
        os.cpu_count() or 1,
    )
    ids, lengths, first_lengths = [], [], []
    for i, choice in enumerate(choices):
        choice = choice[-max_qa_length:]
        article = articles[questions[i // len(LETTERS)].article]
        article = article[: max_seq_length - len(choice) - 3]
        row = [tokenizer.cls_id, *article, tokenizer.sep_id]
        first_lengths.append(len(row))
        row += [*choice, tokenizer.sep_id]
        lengths.append(len(row))
        ids.append(np.array(row, np.int32))
    labels = [-1 if q.label is None else q.label for q in questions]
    return Examples(
        np.concatenate(ids),
        np.array(lengths, np.int32),
        np.array(first_lengths, np.int32),
        {"label_ids": np.array(labels, np.int32)},
        num_choices=len(LETTERS),
    )

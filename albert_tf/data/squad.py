"""Reads SQuAD's JSON: questions about paragraphs, with or without answers.

Supports 1.1, 2.0 and other data in this format, such as CMRC and XQuAD.
"""

import dataclasses
import logging
from typing import NamedTuple

from albert_tf import filesystem
from albert_tf.data import tables
from albert_tf.text import normalization

# Position of an answer that does not occur in its paragraph.
NOWHERE = -1
# Fields of a question that SQuAD has; the last one is not used.
_FIELDS = {"id", "question", "answers", "is_impossible", "plausible_answers"}


class Answer(NamedTuple):
    """An answer: its text, and its first character, or NOWHERE."""

    text: str
    start: int


class Question(NamedTuple):
    """A question about the paragraph of index `context`.

    Its `id` identifies the prediction. `answers` is empty for an unanswerable
    question, and None if the file has no answers.
    """

    id: str
    text: str
    context: int
    answers: tuple[Answer, ...] | None


@dataclasses.dataclass(frozen=True)
class Squad:
    """Paragraphs, and their questions, grouped by paragraph."""

    contexts: list[str]
    questions: list[Question]

    @property
    def has_answers(self) -> bool:
        """Whether all questions have answers or are marked unanswerable."""
        return all(q.answers is not None for q in self.questions)


def read_squad(path: filesystem.Path) -> Squad:
    """Reads a file.

    An answer that is not at its stated position is moved to its nearest
    occurrence. One that does not occur in its paragraph has the position
    NOWHERE: it can be scored, but not trained on. If all lists of answers are
    empty and no question is marked `is_impossible`, the answers are unknown.

    Raises:
      FileNotFoundError: if there is no such file.
      ValueError: if it is not JSON, lacks a field, repeats an id, has no
        question, or has an answer without text.

    Source: squad_utils.py, `read_squad_examples`, which refuses several answers
    in training, and does not check `answer_start`.
    """
    document = filesystem.read_json(path)
    contexts: list[str] = []
    questions: list[Question] = []
    fields: list[dict] = []
    where = path
    try:
        for i, article in enumerate(_typed(document, "data", list)):
            where = f"{path}, article {i + 1}"
            paragraphs = _typed(article, "paragraphs", list)
            for j, paragraph in enumerate(paragraphs):
                where = f"{path}, paragraph {j + 1} of article {i + 1}"
                context = _typed(paragraph, "context")
                for qa in _typed(paragraph, "qas", list):
                    # A numeric id is converted to a string.
                    question_id = str(_typed(qa, "id", str | int))
                    where = f"{path}, question {question_id}"
                    answers = _read_answers(qa)
                    text = _typed(qa, "question")
                    questions.append(
                        Question(question_id, text, len(contexts), answers)
                    )
                    fields.append(qa)
                contexts.append(context)
    except (KeyError, TypeError) as error:
        problem = f"lacks {error}" if isinstance(error, KeyError) else error
        raise ValueError(
            f"{where}: {problem}. Wanted SQuAD's format: data > paragraphs > "
            "context and qas > id, question, answers > text, answer_start."
        ) from error
    _check_questions(path, contexts, questions)
    _warn_of_fields(path, fields)
    if _are_unknown(path, questions, fields):
        questions = [q._replace(answers=None) for q in questions]
    return Squad(contexts, _place_answers(path, contexts, questions))


def _typed(fields, name, kind=str):
    if not isinstance(fields, dict):
        raise TypeError(f"found {fields!r:.60}, wanted an object with {name}")
    return tables.typed(name, fields[name], kind)


def _read_answers(qa):
    """Returns the answers of a question at their stated positions."""
    is_impossible = qa.get("is_impossible")
    if is_impossible not in (None, False, True):
        raise TypeError(
            f"is_impossible: found {is_impossible!r:.60}, wanted true or false"
        )
    if is_impossible:
        return ()
    if "answers" not in qa or (is_impossible is False and qa["answers"] == []):
        return None
    answers = tuple(
        Answer(_typed(answer, "text"), _typed(answer, "answer_start", int))
        for answer in _typed(qa, "answers", list)
    )
    if any(normalization.is_blank(answer.text) for answer in answers):
        raise TypeError(
            "an answer is empty; a question without an answer has "
            '"is_impossible": true'
        )
    return answers


def _place(answer, context):
    """Moves an answer to its occurrence nearest to the stated position."""
    text, start = answer
    if context.startswith(text, max(start, 0)):
        return Answer(text, max(start, 0))
    text = text.strip()
    before = context.rfind(text, 0, max(start, 0) + len(text))
    after = context.find(text, max(start, 0))
    offsets = [offset for offset in (before, after) if offset >= 0]
    if not offsets:
        return Answer(text, NOWHERE)
    return Answer(text, min(offsets, key=lambda offset: abs(offset - start)))


def _place_answers(path, contexts, questions):
    """Returns the questions, with answers where they occur; warns of others."""
    placed = [
        q._replace(
            answers=q.answers
            and tuple(
                _place(answer, contexts[q.context]) for answer in q.answers
            )
        )
        for q in questions
    ]
    moved = [q.id for q, new in zip(questions, placed, strict=True) if q != new]
    if moved:
        lost = [
            q.id
            for q in placed
            if any(answer.start == NOWHERE for answer in q.answers or ())
        ]
        logging.warning(
            "%s: %d of %d questions, such as %s, have answers that are not at "
            "the stated position, in characters; their nearest occurrence is "
            "used. %s.",
            path,
            len(moved),
            len(questions),
            moved[0],
            f"{len(lost)} of them, such as {lost[0]}, have answers that are "
            "not in their paragraph at all"
            if lost
            else "All answers are in their paragraphs",
        )
    return placed


def _warn_of_fields(path, fields):
    """Warns of fields of questions that are unknown or contradict."""
    if unused := sorted({name for qa in fields for name in qa} - _FIELDS):
        logging.warning(
            "%s: fields of questions that are not used: %s.",
            path,
            ", ".join(unused),
        )
    contradict = [
        qa["id"]
        for qa in fields
        if qa.get("is_impossible") and qa.get("answers")
    ]
    if contradict:
        logging.warning(
            "%s: %d of %d questions, such as %s, are marked is_impossible, but "
            "have answers; these are not used.",
            path,
            len(contradict),
            len(fields),
            contradict[0],
        )


def _are_unknown(path, questions, fields):
    """Returns whether empty lists of answers mean that they are unknown."""
    has_any = any(q.answers for q in questions)
    has_empty = any(q.answers is not None for q in questions)
    if has_any or not has_empty:
        return False
    if any(qa.get("is_impossible") for qa in fields):
        return False
    logging.warning(
        "%s: no question has an answer, and none is marked is_impossible: it "
        "is read as data whose answers are unknown.",
        path,
    )
    return True


def _check_questions(path, contexts, questions):
    """Raises ValueError without unique ids; warns of empty texts."""
    if not questions:
        raise ValueError(f"{path} has no questions.")
    repeated = tables.find_repeated(q.id for q in questions)
    if repeated is not None:
        raise ValueError(
            f"{path} has the question id {repeated} twice; wanted unique ids "
            "to identify predictions. Were files concatenated?"
        )
    empty = [
        q.id
        for q in questions
        if any(map(normalization.is_blank, (q.text, contexts[q.context])))
    ]
    if empty:
        logging.warning(
            "%s: %d questions are empty or of an empty paragraph, such as %s.",
            path,
            len(empty),
            empty[0],
        )


def check_version(squad: Squad, version: str, path: filesystem.Path) -> None:
    """Raises ValueError if data cannot be trained on.

    Training requires that all questions have answers, as in the SQuAD version,
    and that the first answer, the one that is used, occurs in its paragraph.

    In version "v1" every question has an answer, in "v2" it may have none.
    `path` is named in messages.
    """
    unknown = [q.id for q in squad.questions if q.answers is None]
    if unknown:
        raise ValueError(
            f"{path} has no answers to {len(unknown)} questions, such as "
            f"{unknown[0]}; training requires answers. Is it test data?"
        )
    lost = [
        (q.id, answer.text)
        for q in squad.questions
        for answer in (q.answers or ())[:1]
        if answer.start == NOWHERE
    ]
    if lost:
        raise ValueError(
            f"{path}, question {lost[0][0]}: the answer {lost[0][1]!r:.80} is "
            f"not in its paragraph ({len(lost)} such answers). Was either "
            "changed, for example by normalizing Unicode or spaces?"
        )
    empty = [q.id for q in squad.questions if not q.answers]
    if version == "v1" and empty:
        raise ValueError(
            f"{path}: {len(empty)} questions, such as {empty[0]}, have no "
            "answer. Is it SQuAD 2.0? Then set squad_version=v2."
        )

"""SQuAD's JSON: questions about paragraphs, with or without answers.

1.1, 2.0 and what is written like them, such as CMRC and XQuAD, are read alike.
"""

import dataclasses
import logging
from typing import NamedTuple

from albert_tf import filesystem


class Answer(NamedTuple):
    """An answer as it stands in a paragraph.

    Attributes:
      text: its characters.
      start: where it begins, in characters of the paragraph.
    """

    text: str
    start: int


class Question(NamedTuple):
    """A question.

    Attributes:
      id: what its prediction is known by.
      text: the question.
      context: number of its paragraph.
      answers: tuple of Answer, empty where there is none; None where the file
        does not say.
    """

    id: str
    text: str
    context: int
    answers: tuple[Answer, ...] | None


@dataclasses.dataclass(frozen=True)
class Squad:
    """Questions and what they are about.

    Attributes:
      contexts: paragraphs, strings.
      questions: list of Question, those of one paragraph side by side.
    """

    contexts: list[str]
    questions: list[Question]

    @property
    def has_answers(self) -> bool:
        """Whether the file says the answers, or that there is none."""
        return all(q.answers is not None for q in self.questions)


def read_squad(path: filesystem.Path) -> Squad:
    """Reads a file.

    The position of an answer that does not stand where the file says is the
    nearest one where it does.

    Raises:
      FileNotFoundError: if there is no such file.
      ValueError: if it is not JSON, lacks a field, names an id twice, has no
        question, or an answer that is nowhere in its paragraph.

    Source: squad_utils.py, `read_squad_examples`, which left out questions
    whose answer is elsewhere or is not the only one.
    """
    document = filesystem.read_json(path)
    contexts: list[str] = []
    questions, num_moved = [], 0
    where = path
    try:
        for i, article in enumerate(_typed(document, "data", list)):
            where = f"{path}, article {i + 1}"
            paragraphs = _typed(article, "paragraphs", list)
            for j, paragraph in enumerate(paragraphs):
                where = f"{path}, paragraph {j + 1} of article {i + 1}"
                context = _typed(paragraph, "context")
                for qa in _typed(paragraph, "qas", list):
                    # A number is taken as its digits.
                    question_id = str(_typed(qa, "id", str | int))
                    where = f"{path}, question {question_id}"
                    answers = _read_answers(qa)
                    placed = answers and tuple(
                        _place(answer, context, where) for answer in answers
                    )
                    num_moved += placed != answers
                    text = _typed(qa, "question")
                    questions.append(
                        Question(question_id, text, len(contexts), placed)
                    )
                contexts.append(context)
    except (KeyError, TypeError) as error:
        problem = f"lacks {error}" if isinstance(error, KeyError) else error
        raise ValueError(
            f"{where}: {problem}. Wanted SQuAD's form: data > paragraphs > "
            "context and qas > id, question, answers > text, answer_start."
        ) from error
    _check_ids(path, questions)
    if num_moved:
        logging.warning(
            "%s: answers of %d questions do not stand where it says; the "
            "nearest place is taken.",
            path,
            num_moved,
        )
    return Squad(contexts, questions)


_WANTED = {list: "a list", int: "a whole number"}


def _typed(fields, name, kind=str):
    if not isinstance(fields, dict):
        raise TypeError(
            f"found {fields!r:.60} where an object with {name} should be"
        )
    value = fields[name]
    if not isinstance(value, kind) or isinstance(value, bool):
        wanted = _WANTED.get(kind, "a string")
        raise TypeError(f"{name} is {value!r:.60}, wanted {wanted}")
    return value


def _read_answers(qa):
    """The answers that a question's fields state, where they say they are."""
    is_impossible = qa.get("is_impossible")
    if is_impossible not in (None, False, True):
        raise TypeError(f"is_impossible is {is_impossible!r:.60}")
    if is_impossible:
        return ()
    if "answers" not in qa:
        return None
    return tuple(
        Answer(_typed(answer, "text"), _typed(answer, "answer_start", int))
        for answer in _typed(qa, "answers", list)
    )


def _place(answer, context, where):
    """An answer with the place nearest to its own where it really stands."""
    text, start = answer
    if text.strip() and context.startswith(text, max(start, 0)):
        return Answer(text, max(start, 0))
    text = text.strip()
    before = context.rfind(text, 0, max(start, 0) + len(text))
    after = context.find(text, max(start, 0))
    places = [place for place in (before, after) if place >= 0]
    if not text or not places:
        raise ValueError(
            f"{where}: the answer {text!r:.80} is not in its paragraph. Was "
            "one of them changed, by normalizing Unicode or spaces?"
        )
    return Answer(text, min(places, key=lambda place: abs(place - start)))


def _check_ids(path, questions):
    if not questions:
        raise ValueError(f"{path} has no questions.")
    ids = set()
    for question in questions:
        if question.id in ids:
            raise ValueError(
                f"{path} has the question id {question.id} twice; predictions "
                "are known by it. Were files joined?"
            )
        ids.add(question.id)


def check_version(squad: Squad, version: str, path: filesystem.Path) -> None:
    """Raises ValueError if training data is not of SQuAD's version.

    Args:
      squad: a Squad.
      version: "v1", where every question has an answer, or "v2".
      path: where it is from.
    """
    unknown = [q.id for q in squad.questions if q.answers is None]
    if unknown:
        raise ValueError(
            f"{path} does not say the answers of {len(unknown)} questions, "
            f"such as {unknown[0]}; wanted answers to train on."
        )
    empty = [q.id for q in squad.questions if not q.answers]
    if version == "v1" and empty:
        raise ValueError(
            f"{path}: {len(empty)} questions, such as {empty[0]}, have no "
            "answer. Is it SQuAD 2.0? Then say --squad_version=v2."
        )

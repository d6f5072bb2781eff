"""Encodes questions with windows of their paragraphs as token sequences.

A paragraph that is too long for one sequence is split into overlapping
windows. Each token has a span of characters, so that an answer can be cut from
the original text.

Shapes: P tokens of a paragraph, W windows of a question; N, S as in `examples`.
"""

from typing import NamedTuple

import numpy as np

from albert_tf import progress
from albert_tf.data import examples, processes
from albert_tf.data.examples import Examples
from albert_tf.data.squad import Answer, Squad, check_version
from albert_tf.text import normalization, tokenization

# Paragraphs per task of a worker: SQuAD's training data are about 100 tasks.
CONTEXTS_PER_TASK = 200


class WindowSettings(NamedTuple):
    """Settings of windows.

    Attributes:
      max_seq_length: maximum number of tokens per sequence.
      doc_stride: tokens between the starts of successive windows.
      max_query_length: maximum number of tokens of a question; longer ones
        are truncated.

    Example:
      >>> settings = WindowSettings(384, doc_stride=128, max_query_length=64)
      >>> room = settings.max_seq_length - settings.max_query_length - 3
      >>> cut_windows(600, room, settings.doc_stride)
      [(0, 317), (128, 445), (256, 573), (384, 600)]
    """

    max_seq_length: int
    doc_stride: int
    max_query_length: int


def check_settings(settings: WindowSettings) -> None:
    """Raises ValueError if the settings leave no room for a window."""
    room = settings.max_seq_length - settings.max_query_length - 3
    if room < 1 or settings.max_query_length < 1 or settings.doc_stride < 1:
        raise ValueError(
            f"max_seq_length={settings.max_seq_length} must exceed "
            f"max_query_length={settings.max_query_length} by at least 4, "
            "for [CLS], 2 [SEP] and a token of the paragraph; and "
            f"max_query_length and doc_stride={settings.doc_stride} must "
            "be at least 1."
        )


def encode_squad(
    squad: Squad,
    tokenizer: tokenization.Tokenizer,
    settings: WindowSettings,
    *,
    is_training: bool,
    num_workers: int = 1,
) -> Examples:
    """Encodes questions as [CLS] question [SEP] window [SEP].

    A paragraph without tokens has one empty window.

    Returns:
      Examples, the windows of each question in order, with the array
      `question_index` [N]. For training also `start_positions`,
      `end_positions` and `is_impossible` [N] int32 of the first answer, as
      positions in the sequence; a window that does not contain the whole
      answer is impossible and has 0 for both positions. Otherwise also the
      token arrays `token_spans` [S, 2] int32, the token's characters in the
      paragraph (0, 0 if none), and `is_max_context` [S] bool, whether no
      other window of the question has more context for the token.

    Raises:
      ValueError: if there are no questions, or an answer to be trained on is
        unknown or not in its paragraph.

    Source: squad_utils.py, `convert_examples_to_features`, which aligned
    characters by a longest common subsequence.
    """
    check_settings(settings)
    if not squad.questions:
        raise ValueError("There are no questions.")
    if is_training:
        check_version(squad, "v2", "The training data")
    tasks = _divide(squad)
    with processes.ordered_map(
        min(num_workers, len(tasks)), tokenizer, settings, is_training
    ) as run:
        done = progress.Progress(
            "tokenizing", len(squad.questions), "questions"
        )
        parts = []
        for part in run(_encode_questions, ((task,) for task in tasks)):
            parts.append(part)
            done.add(len(part["query_lengths"]))
        done.clear()
    whole = {
        name: np.concatenate([part[name] for part in parts])
        for name in sorted(parts[0])
    }
    truncation = (
        examples.describe_truncation(
            "questions", whole.pop("query_lengths"), settings.max_query_length
        ),
        _describe_lost(whole.pop("is_lost")),
    )
    per_token = () if is_training else ("is_max_context", "token_spans")
    return Examples(
        whole.pop("ids"),
        whole.pop("lengths"),
        whole.pop("first_lengths"),
        token_arrays={name: whole.pop(name) for name in per_token},
        arrays=whole,
        truncation=" ".join(filter(None, truncation)),
    )


def _divide(squad):
    """Divides the paragraphs that have questions among tasks."""
    asked: list[list] = [[] for _ in squad.contexts]
    for number, question in enumerate(squad.questions):
        asked[question.context].append((number, question))
    rows = [row for row in zip(squad.contexts, asked, strict=True) if row[1]]
    return [
        rows[start : start + CONTEXTS_PER_TASK]
        for start in range(0, len(rows), CONTEXTS_PER_TASK)
    ]


def _encode_questions(tokenizer, settings, is_training, rows):
    """Encodes the questions of some paragraphs; returns arrays by name."""
    texts = [question.text for _, asked in rows for _, question in asked]
    queries = iter(tokenizer.encode_batch(texts))
    windows, query_lengths, is_lost = [], [], []
    for context, asked in rows:
        ids, spans = tokenizer.encode_with_offsets(context)
        spans = np.array(spans, np.int32).reshape(-1, 2)  # [P, 2]
        for number, question in asked:
            query = next(queries)
            query_lengths.append(len(query))
            query = query[: settings.max_query_length]
            head = [tokenizer.cls_id, *query, tokenizer.sep_id]
            room = settings.max_seq_length - len(head) - 1
            bounds = cut_windows(len(ids), room, settings.doc_stride)
            answer = None
            if is_training and question.answers:
                answer = find_tokens(spans, question.answers[0])
            is_lost.append(
                answer is not None
                and not any(_is_inside(answer, *window) for window in bounds)
            )
            is_best = find_max_context(bounds, len(ids))
            for (start, end), is_max_context in zip(
                bounds, is_best, strict=True
            ):
                window: dict = {
                    "ids": [*head, *ids[start:end], tokenizer.sep_id],
                    "lengths": [len(head) + end - start + 1],
                    "first_lengths": [len(head)],
                    "question_index": [number],
                }
                if is_training:
                    window |= _positions(answer, start, end, len(head))
                else:
                    around = len(head), 1
                    window["token_spans"] = np.pad(
                        spans[start:end], (around, (0, 0))
                    )
                    window["is_max_context"] = np.pad(is_max_context, around)
                windows.append(window)
    joined = {
        name: np.concatenate([window[name] for window in windows])
        for name in windows[0]
    }
    joined["query_lengths"] = np.array(query_lengths)
    joined["is_lost"] = np.array(is_lost)
    return {
        name: values if values.dtype == bool else values.astype(np.int32)
        for name, values in joined.items()
    }


def _positions(answer, start, end, num_before):
    """Returns the positions of an answer (first, last token) in a window."""
    is_inside = answer is not None and _is_inside(answer, start, end)
    offset = num_before - start
    return {
        "start_positions": [answer[0] + offset if is_inside else 0],
        "end_positions": [answer[1] + offset if is_inside else 0],
        "is_impossible": [int(not is_inside)],
    }


def _is_inside(answer, start, end):
    """Returns whether a window contains an answer (first, last token)."""
    return start <= answer[0] and answer[1] < end


def _describe_lost(is_lost):
    """Returns a sentence on answers that no window contains, or ""."""
    if not is_lost.any():
        return ""
    return (
        f"The answers of {is_lost.sum():,} of {len(is_lost):,} questions are "
        "in no window, which teaches that these have none: a smaller "
        "doc_stride or a larger max_seq_length keeps more."
    )


def cut_windows(
    num_tokens: int, size: int, stride: int
) -> list[tuple[int, int]]:
    """Returns (start, end) of each window of a paragraph of P tokens.

    A window has at most `size` tokens. Windows start `stride` tokens apart, at
    most `size`, as a larger stride would skip tokens.
    """
    step = min(size, stride)
    starts = range(0, min(num_tokens, num_tokens - size + step), step)
    return [(start, min(start + size, num_tokens)) for start in starts or [0]]


def find_max_context(bounds: list, num_tokens: int) -> list[np.ndarray]:
    """Finds, for each of P tokens, the window with the most context.

    The context of a token in a window is the smaller of the numbers of tokens
    to its left and right, plus a hundredth of the window's length. Ties go to
    the first window.

    Returns:
      W bool arrays [end - start]: whether this window has the most context
      for each of its tokens.

    Source: squad_utils.py, `_check_is_max_context`.
    """
    best_scores = np.full(num_tokens, -np.inf)  # [P]
    best = np.zeros(num_tokens, np.int64)  # [P]
    for w, (start, end) in enumerate(bounds):
        before = np.arange(end - start)
        scores = np.minimum(before, before[::-1]) + 0.01 * (end - start)
        is_better = scores > best_scores[start:end]
        best_scores[start:end][is_better] = scores[is_better]
        best[start:end][is_better] = w
    return [best[start:end] == w for w, (start, end) in enumerate(bounds)]


def find_tokens(spans: np.ndarray, answer: Answer) -> tuple[int, int] | None:
    """Returns the first and last token of an answer; None without tokens.

    `spans` [P, 2] are the character spans of the tokens, in order.
    """
    if not len(spans):
        return None
    first, end = normalization.trim(answer.text, 0, len(answer.text))
    first, last = answer.start + first, answer.start + end - 1
    start = int(np.searchsorted(spans[:, 1], first, side="right"))
    end = int(np.searchsorted(spans[:, 0], last, side="right")) - 1
    start = min(start, len(spans) - 1)
    return start, max(start, end)

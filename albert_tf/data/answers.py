"""Converts token scores into answers: the n best of each question.

Shapes: N windows, S tokens in all windows, T tokens, K starts of the beam, J
ends per start, C candidates.
"""

import dataclasses

import numpy as np

from albert_tf.data.examples import Examples
from albert_tf.data.squad import Squad
from albert_tf.text import normalization


@dataclasses.dataclass(frozen=True)
class Answers:
    """The answers of a model.

    Attributes:
      best: dict of question id -> the best text other than "no answer".
      nbest: dict of question id -> list of dicts with `text`, `probability`
        (normalized over the list), `start_log_prob` and `end_log_prob`.
      null_odds: dict of question id -> score of "no answer"; empty if the
        model always answers.
      places: dict of question id -> for each of `nbest` its first character in
        the paragraph and the one after its last.
    """

    best: dict[str, str]
    nbest: dict[str, list[dict]]
    null_odds: dict[str, float]
    places: dict[str, list[tuple[int, int]]] = dataclasses.field(
        default_factory=dict
    )


def find_answers(
    squad: Squad,
    examples: Examples,
    outputs: dict[str, np.ndarray],
    *,
    n_best_size: int = 20,
    max_answer_length: int = 30,
) -> Answers:
    """Finds the best answers of each question, in the original text.

    `examples` are the windows of the questions, from `windows.encode_squad`;
    `outputs` those of the model, [N, ...] arrays: `start_logits` and
    `end_logits` [N, T], or the beam of `span_heads.AlbertConditionalSpans`.
    Without a beam, `n_best_size` is also the number of starts and of ends per
    window that are paired. `max_answer_length` counts tokens.

    Returns:
      Answers to every question. A question without a candidate gets "".

    Source: squad_utils.py, `accumulate_predictions_v1`, `_v2` and
    `write_predictions_v1`, `_v2`, which answer "empty" in that case and also
    pair padding.
    """
    windows: list[list[int]] = [[] for _ in squad.questions]
    for window, question in enumerate(examples.arrays["question_index"]):
        windows[question].append(window)
    best, nbest, null_odds, places = {}, {}, {}, {}
    for question, rows in zip(squad.questions, windows, strict=True):
        candidates = [
            _find_candidates(
                examples, outputs, row, n_best_size, max_answer_length
            )
            for row in rows
        ]
        nbest[question.id], places[question.id] = rank(
            squad.contexts[question.context],
            n_best_size,
            *map(np.concatenate, zip(*candidates, strict=True)),
        )
        best[question.id] = nbest[question.id][0]["text"]
        if "cls_logits" in outputs:
            null_odds[question.id] = float(outputs["cls_logits"][rows].min())
    return Answers(best, nbest, null_odds, places)


def _find_candidates(examples, outputs, row, n_best_size, max_answer_length):
    """Returns the candidates of a window, as characters of the paragraph.

    Returns:
      First character, end character, start score and end score, [C] each.
    """
    num_tokens = examples.lengths[row]
    if "cls_logits" in outputs:
        starts, ends, *scores = pair_beam(outputs, row)
    else:
        first, last = (outputs[n][row] for n in ("start_logits", "end_logits"))
        starts, ends, *scores = pair_best(first, last, num_tokens, n_best_size)
    tokens = slice(examples.starts[row], examples.starts[row] + num_tokens)
    last = num_tokens - 1  # [SEP]
    is_max_context = examples.token_arrays["is_max_context"][tokens]
    is_valid = (
        (starts >= examples.first_lengths[row])
        & (starts <= ends)
        & (ends < last)
        & (ends - starts < max_answer_length)
        # A beam may have positions of padding.
        & is_max_context[np.minimum(starts, last)]
    )
    spans = examples.token_arrays["token_spans"][tokens]
    return (
        spans[starts[is_valid], 0],
        spans[ends[is_valid], 1],
        *(values[is_valid] for values in scores),
    )


def pair_best(start_logits, end_logits, num_tokens, n_best_size) -> tuple:
    """Pairs the best starts of a window with its best ends; logits are [T].

    Only the first `num_tokens` are paired: an answer must not depend on the
    padding that follows them.

    Returns:
      First tokens, last tokens, and the logits of both, [C] each.
    """
    starts, ends = (
        np.argsort(-logits[:num_tokens], kind="stable")[:n_best_size]
        for logits in (start_logits, end_logits)
    )
    starts, ends = (x.ravel() for x in np.meshgrid(starts, ends, indexing="ij"))
    return starts, ends, start_logits[starts], end_logits[ends]


def pair_beam(outputs, row) -> tuple:
    """Pairs the starts of a window's beam, [K], with their ends, [K * J].

    Returns what `pair_best` returns.
    """
    starts = outputs["start_top_index"][row]
    ends = outputs["end_top_index"][row]
    num_ends = len(ends) // len(starts)
    return (
        np.repeat(starts, num_ends),
        ends,
        np.repeat(outputs["start_top_log_probs"][row], num_ends),
        outputs["end_top_log_probs"][row],
    )


def rank(
    context, n_best_size, firsts, lasts, start_scores, end_scores
) -> tuple:
    """Ranks the candidates of a question; keeps each text once.

    Candidates are the characters [firsts, lasts) of the paragraph `context`,
    with scores; all arrays are [C], and C may be 0. A blank text is "", as in
    the release.

    Returns:
      Lists of 1 to `n_best_size` dicts and pairs of characters, as in
      `Answers.nbest` and `Answers.places`.
    """
    if not len(firsts):  # The answer is "".
        firsts = lasts = start_scores = end_scores = np.zeros(1, np.int32)
    start_scores = start_scores.astype(np.float64)
    end_scores = end_scores.astype(np.float64)
    scores = start_scores + end_scores
    kept = {}
    for i in np.argsort(-scores, kind="stable"):
        # SQuAD's script compares texts, and "\u200b40" is not "40".
        start, end = normalization.trim(context, firsts[i], lasts[i])
        text = context[start:end]
        if text not in kept:
            kept[text] = i, (start, end)
            if len(kept) == n_best_size:
                break
    order = [i for i, _ in kept.values()]
    odds = np.exp(scores[order] - scores[order[0]])
    nbest = [
        {
            "text": text,
            "probability": float(probability),
            "start_log_prob": float(start_scores[i]),
            "end_log_prob": float(end_scores[i]),
        }
        for text, i, probability in zip(
            kept, order, odds / odds.sum(), strict=True
        )
    ]
    return nbest, [(int(start), int(end)) for _, (start, end) in kept.values()]


def apply_threshold(answers: Answers, threshold: float) -> dict[str, str]:
    """Returns the answer to each question; "" if odds reach the threshold.

    Source: squad_utils.py, `write_predictions_v2`.
    """
    return {
        question_id: text if answers.null_odds[question_id] < threshold else ""
        for question_id, text in answers.best.items()
    }

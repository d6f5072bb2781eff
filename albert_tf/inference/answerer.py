"""Answers questions about paragraphs with a fine-tuned model."""

import logging
from collections.abc import Iterable

from albert_tf import filesystem
from albert_tf.data import answers, squad, text_data, windows
from albert_tf.inference import fine_tuned, remarks
from albert_tf.tasks.recipes import (
    BEAM,
    AnswerSettings,
    Recipe,
    choose_windows,
    recall_answers,
)
from albert_tf.weights import pretrained, task_heads


class Answerer:
    r"""A model of run_squad, ready to be asked about paragraphs.

    Args:
      model: what `read_pretrained` takes, such as the --output_dir or
        --export_dir of run_squad, or what it returns.
      max_seq_length: as for `WindowSettings`, like the next two. Unless it is
        given, those that are None are of the fine-tuning; what is then unknown
        is chosen by `recipes.choose_windows`.
      doc_stride: see there.
      max_query_length: see there.
      settings: an AnswerSettings. Its threshold, if any, replaces the model's.
        None for answers of at most the model's length.
      compute_dtype: as for `Recipe`.

    Attributes:
      threshold: questions whose no-answer score reaches it are not answered;
        None for a model of SQuAD 1.1, which always answers.
      model: the model. Its weights must not change: calls may hold copies.

    Raises:
      ValueError: if the model has no vocabulary, or another head or none, or
        the lengths leave no room for the paragraph.

    Example:
      >>> from albert_tf import (
      ...     AlbertConfig, AlbertSpans, build_tokenizer, named_weights)
      >>> words = "[PAD] [UNK] [CLS] [SEP] [MASK] who ran the cat".split()
      >>> size = open("vocab.txt", "w").write("\n".join(words))
      >>> config = AlbertConfig(
      ...     vocab_size=9, hidden_size=8, num_attention_heads=2)
      >>> random = named_weights(AlbertSpans(config))
      >>> answerer = Answerer(pretrained.Pretrained(
      ...     "random", {n: w.numpy() for n, w in random.items()}, config,
      ...     build_tokenizer(vocab_file="vocab.txt"),
      ...     head=task_heads.TaskHead("spans")))
      >>> [answer] = answerer([("Who ran?", "The cat ran")])
      >>> answer["prediction"] in "The cat ran"
      True
    """

    def __init__(
        self,
        model: filesystem.Path | pretrained.Pretrained,
        *,
        max_seq_length: int | None = None,
        doc_stride: int | None = None,
        max_query_length: int | None = None,
        settings: AnswerSettings | None = None,
        compute_dtype: str = Recipe.compute_dtype,
    ):
        start = pretrained.complete(model)
        head = fine_tuned.check_head(
            start,
            ["spans", "conditional_spans"],
            "a model that answers questions",
            "run_squad",
        )
        self.settings = settings or AnswerSettings(**recall_answers(head))
        self.threshold = self._choose_threshold(head, start.source)
        self.tokenizer = start.tokenizer
        given = {
            "max_seq_length": max_seq_length,
            "doc_stride": doc_stride,
            "max_query_length": max_query_length,
        }
        known = head.lengths if max_seq_length is None else {}
        lengths = {
            n: known.get(n) if x is None else x for n, x in given.items()
        }
        self.windows = windows.WindowSettings(
            **choose_windows(start.config, **lengths)
        )
        windows.check_settings(self.windows)
        beam = {}
        if self.threshold is not None:
            beam = {n: getattr(self.settings, n) for n in BEAM}
        self._min_length = max(beam.values(), default=1)
        self._remarks = remarks.Remarks()
        self._predict = fine_tuned.build_predictor(start, compute_dtype, **beam)
        self.model = self._predict.model

    def _choose_threshold(self, head, source):
        """Returns the threshold of a model of SQuAD 2.0, or None of 1.1."""
        given = self.settings.null_score_diff_threshold
        if head.kind == "spans" and given is not None:
            raise ValueError(
                f"null_score_diff_threshold={given:g}, but {source} has the "
                "head of SQuAD 1.1, which always answers."
            )
        if head.kind == "spans" or given is not None:
            return given
        if head.threshold is None:
            logging.warning(
                "%s was not scored, or without %s next to it, so its best "
                "no-answer threshold is unknown. It is set to 0.",
                source,
                task_heads.HEAD_FILE,
            )
        return head.threshold or 0.0

    def __call__(self, questions: Iterable[tuple[str, str]]) -> list[dict]:
        """Answers pairs of a question and its paragraph.

        Returns:
          A dict for each pair, in order:

          prediction: the best answer, a part of the paragraph; "" if there is
            none.
          answers: list of dicts of `text`, `probability`, `start` and `end`,
            the character after its last; the best first.
          null_odds: the no-answer score; absent for a model of SQuAD 1.1.

        Raises:
          ValueError: if `questions` is no list of pairs.
        """
        pairs = text_data.list_texts(questions)
        for pair in pairs:
            parts = text_data.split_pair(pair)
            if not parts or parts[1] is None:
                raise ValueError(
                    f"Found {pair!r:.80}; wanted pairs of a question and its "
                    "paragraph."
                )
        if not pairs:
            return []
        paragraphs = dict.fromkeys(text for _, text in pairs)
        places = {text: i for i, text in enumerate(paragraphs)}
        asked = squad.Squad(
            list(paragraphs),
            [
                squad.Question(str(i), question, places[text], None)
                for i, (question, text) in enumerate(pairs)
            ],
        )
        encoded = windows.encode_squad(
            asked, self.tokenizer, self.windows, is_training=False
        )
        self._remarks.say("long", encoded.truncation)
        self._remarks.say_unknown(encoded.ids, self.tokenizer)
        outputs = self._predict(
            encoded,
            self.windows.max_seq_length,
            Recipe.tokens_per_batch,
            min_length=self._min_length,
        )
        found = answers.find_answers(
            asked,
            encoded,
            outputs,
            n_best_size=self.settings.n_best_size,
            max_answer_length=self.settings.max_answer_length,
        )
        return [self._describe(found, q.id) for q in asked.questions]

    def _describe(self, found, key):
        """Returns the answer to the question with the id `key`."""
        rows = zip(found.nbest[key], found.places[key], strict=True)
        described = {
            "prediction": found.best[key],
            "answers": [
                {
                    "text": entry["text"],
                    "probability": entry["probability"],
                    "start": start,
                    "end": end,
                }
                for entry, (start, end) in rows
            ],
        }
        if self.threshold is not None:
            odds = described["null_odds"] = found.null_odds[key]
            if odds >= self.threshold:
                described["prediction"] = ""
        return described

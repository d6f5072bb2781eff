"""Tags the words of texts with a fine-tuned model.

Shapes: W words of all texts, C tags.
"""

from collections.abc import Iterable

import numpy as np

from albert_tf import filesystem
from albert_tf.data import tagged, text_data, word_windows
from albert_tf.inference import fine_tuned, remarks
from albert_tf.metrics import classification, tagging
from albert_tf.tasks.recipes import Recipe, choose_stride
from albert_tf.weights import pretrained, task_heads


class Tagger:
    r"""A model of run_tagger, ready to be called with texts.

    Args:
      model: what `read_pretrained` takes, such as the --output_dir of
        run_tagger, or what it returns.
      max_seq_length: maximum length of a sequence, in tokens; longer texts are
        divided into windows. If it is None, it is that of the fine-tuning; an
        unknown length is 512, or the model's positions if they are fewer.
      doc_stride: tokens between the starts of windows. If both are None, it is
        that of the fine-tuning, otherwise half of the length.
      compute_dtype: as for `Recipe`.

    Attributes:
      labels: C names of tags.
      model: the model. Its weights must not change: calls may hold copies.

    Raises:
      ValueError: if the model has no vocabulary, or another head or none.

    Example:
      >>> from albert_tf import (
      ...     AlbertConfig, AlbertTagger, build_tokenizer, named_weights)
      >>> words = "[PAD] [UNK] [CLS] [SEP] [MASK] ann ran".split()
      >>> size = open("vocab.txt", "w").write("\n".join(words))
      >>> config = AlbertConfig(
      ...     vocab_size=7, hidden_size=8, num_attention_heads=2)
      >>> random = named_weights(AlbertTagger(config, num_labels=3))
      >>> tagger = Tagger(pretrained.Pretrained(
      ...     "random", {n: w.numpy() for n, w in random.items()}, config,
      ...     build_tokenizer(vocab_file="vocab.txt"),
      ...     head=task_heads.TaskHead("tags", ("O", "B-PER", "I-PER"))))
      >>> [answer] = tagger(["Ann ran."])
      >>> [word["word"] for word in answer["words"]]
      ['Ann', 'ran', '.']
    """

    def __init__(
        self,
        model: filesystem.Path | pretrained.Pretrained,
        *,
        max_seq_length: int | None = None,
        doc_stride: int | None = None,
        compute_dtype: str = Recipe.compute_dtype,
    ):
        start = pretrained.complete(model)
        head = fine_tuned.check_head(start, ["tags"], "a tagger", "run_tagger")
        num_outputs = len(start.values["output_bias"])
        self.labels = head.labels or task_heads.default_labels(num_outputs)
        self.tokenizer = start.tokenizer
        if max_seq_length is None:
            max_seq_length = head.lengths.get("max_seq_length")
            if doc_stride is None:
                doc_stride = head.lengths.get("doc_stride")
        self.max_seq_length = start.config.choose_length(max_seq_length)
        self.doc_stride = choose_stride(self.max_seq_length, doc_stride)
        word_windows.check_lengths(self.max_seq_length, self.doc_stride)
        self._predict = fine_tuned.build_predictor(start, compute_dtype)
        self.model = self._predict.model
        self._remarks = remarks.Remarks()

    def __call__(self, texts: Iterable) -> list[dict]:
        """Tags texts, or lists of words.

        Returns:
          A dict for each text, in order:

          words: list of dicts of `word`, `tag`, its `probability`, and `start`
            and `end`, the character after its last. The words of a text are
            those of `words.find_words`; given ones are joined by spaces, except
            in scripts without them.
          spans: list of dicts of `text`, `label`, `probability`, that of its
            least certain word, `start` and `end`; absent for plain tags.

        Raises:
          ValueError: if `texts` is no list of texts or of lists of words.
        """
        sentences = [_make_sentence(x) for x in text_data.list_texts(texts)]
        encoded = word_windows.encode_sentences(
            sentences, self.tokenizer, self.max_seq_length, self.doc_stride
        )
        self._remarks.say_unknown(encoded.ids, self.tokenizer)
        rows = iter(())
        if len(encoded):
            outputs = self._predict(
                encoded, self.max_seq_length, Recipe.tokens_per_batch
            )
            logits = word_windows.take_words(outputs["logits"], encoded)
            rows = iter(classification.probabilities(logits, "classes"))
        return [
            self._describe(sentence, [next(rows) for _ in sentence.words])
            for sentence in sentences
        ]

    def _describe(self, sentence, probabilities):
        """Returns the answer of a sentence; W rows of probabilities [C]."""
        best = [int(np.argmax(row)) for row in probabilities]
        words = [
            {
                "word": word,
                "tag": self.labels[i],
                "probability": float(row[i]),
                "start": start,
                "end": end,
            }
            for word, i, row, (start, end) in zip(
                sentence.words, best, probabilities, sentence.spans, strict=True
            )
        ]
        answer: dict = {"words": words}
        if all(map(tagging.is_span_tag, self.labels)):
            found = tagging.find_spans([word["tag"] for word in words])
            answer["spans"] = [
                _describe_span(sentence.text, label, words[first:end])
                for label, first, end in found
            ]
        return answer


def _describe_span(text, label, words):
    """Returns the span of some words of a text."""
    start, end = words[0]["start"], words[-1]["end"]
    return {
        "text": text[start:end],
        "label": label,
        "probability": min(word["probability"] for word in words),
        "start": start,
        "end": end,
    }


def _make_sentence(text):
    """Returns the `tagged.Sentence` of a text or of a list of words."""
    if isinstance(text, str):
        return tagged.split_text(text)
    if isinstance(text, list | tuple) and all(
        isinstance(word, str) and word.strip() for word in text
    ):
        return tagged.join_words(list(text))
    raise ValueError(
        f"Found {text!r:.80}; wanted a text, or a list of words that are not "
        "empty."
    )

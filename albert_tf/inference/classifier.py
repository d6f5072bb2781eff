"""Classifies texts with a fine-tuned model.

Shapes: N texts, C labels.
"""

from collections.abc import Iterable

from albert_tf import filesystem
from albert_tf.data import examples, text_data
from albert_tf.inference import fine_tuned, remarks
from albert_tf.metrics import classification
from albert_tf.model import heads
from albert_tf.tasks.recipes import Recipe
from albert_tf.weights import pretrained, task_heads


class Classifier:
    r"""A fine-tuned classifier or regression, ready to be called with texts.

    Args:
      model: what `read_pretrained` takes, such as the --output_dir of
        run_classifier, or what it returns.
      max_seq_length: maximum length of a sequence, in tokens; longer texts are
        truncated. None for that of the fine-tuning; if it is unknown 512, or
        the model's positions if they are fewer.
      exit_threshold: answers after as few layers as a text needs, as for
        `model.exits.predict`; None for the model's own, 0 for all layers.
      compute_dtype: as for `Recipe`.

    Attributes:
      labels: C names of labels; empty for a regression.
      objective: one of `heads.OBJECTIVES`.
      model: the model. Its weights must not change: calls may hold copies.

    Raises:
      ValueError: if the model has no vocabulary, or another head or none.

    Example:
      >>> from albert_tf import AlbertConfig, build_tokenizer, named_weights
      >>> words = "[PAD] [UNK] [CLS] [SEP] [MASK] good bad".split()
      >>> size = open("vocab.txt", "w").write("\n".join(words))
      >>> tokenizer = build_tokenizer(vocab_file="vocab.txt")
      >>> config = AlbertConfig(
      ...     vocab_size=7, hidden_size=8, num_attention_heads=2)
      >>> random = heads.AlbertClassifier(config, num_labels=2)
      >>> values = {n: w.numpy() for n, w in named_weights(random).items()}
      >>> head = task_heads.TaskHead("classes", ("no", "yes"))
      >>> classifier = Classifier(pretrained.Pretrained(
      ...     "random", values, config, tokenizer, head=head))
      >>> [answer] = classifier(["good"])
      >>> sorted(answer["probabilities"])
      ['no', 'yes']
    """

    def __init__(
        self,
        model: filesystem.Path | pretrained.Pretrained,
        *,
        max_seq_length: int | None = None,
        exit_threshold: float | None = None,
        compute_dtype: str = Recipe.compute_dtype,
    ):
        start = pretrained.complete(model)
        head = fine_tuned.check_head(
            start, heads.OBJECTIVES, "a classifier", "run_classifier"
        )
        num_outputs = len(start.values["output_bias"])
        names = head.labels or task_heads.default_labels(num_outputs)
        self.objective = head.kind
        self.has_pairs = head.has_pairs
        self.labels = () if self.objective == "regression" else names
        self.tokenizer = start.tokenizer
        self.max_seq_length = start.config.choose_length(
            head.lengths.get("max_seq_length")
            if max_seq_length is None
            else max_seq_length
        )
        if exit_threshold is None:
            exit_threshold = head.threshold
        # With 0, no row leaves.
        self._remarks = remarks.Remarks()
        self._predict = fine_tuned.build_predictor(
            start, compute_dtype, exit_threshold or None
        )
        self.model = self._predict.model

    def __call__(self, texts: Iterable) -> list[dict]:
        """Classifies texts, or pairs of texts.

        Returns:
          A dict for each text, in order:

          prediction: the label; a list of labels for "multi_label"; a number
            for a regression.
          probabilities: dict from label to probability; absent for a
            regression.
          num_layers: how many layers it took, if the model leaves early.

        Raises:
          ValueError: if `texts` is no list of texts or pairs.
        """
        rows = text_data.make_rows(texts)
        if not rows:
            return []
        packed = examples.pack_pairs(
            self.tokenizer,
            [row.text_a for row in rows],
            [row.text_b for row in rows],
            self.max_seq_length,
        )
        self._remarks.say("long", packed.truncation)
        self._remarks.say_unknown(packed.ids, self.tokenizer)
        self._remarks.say("pairs", self._describe_pairs(rows))
        outputs = self._predict(
            packed, self.max_seq_length, Recipe.tokens_per_batch
        )
        answers = self._describe(outputs["logits"])
        if "num_layers" in outputs:
            for answer, count in zip(
                answers, outputs["num_layers"].tolist(), strict=True
            ):
                answer["num_layers"] = count
        return answers

    def _describe_pairs(self, rows):
        """Returns a warning if texts are no pairs, or should not be."""
        if self.has_pairs is None:
            return None
        count = sum((row.text_b is not None) != self.has_pairs for row in rows)
        if not count:
            return None
        names = {True: "pairs of texts", False: "single texts"}
        return (
            f"The model was trained on {names[self.has_pairs]}, but {count:,} "
            f"of {len(rows):,} are {names[not self.has_pairs]}. Its answers to "
            "them mean little."
        )

    def _describe(self, logits):
        """Returns the answers of logits [N, C]."""
        found = classification.predict_labels(logits, self.objective)
        if self.objective == "regression":
            return [{"prediction": value} for value in found.tolist()]
        probabilities = classification.probabilities(logits, self.objective)
        return [
            {
                "prediction": self._name(some),
                "probabilities": dict(zip(self.labels, row, strict=True)),
            }
            for some, row in zip(found, probabilities.tolist(), strict=True)
        ]

    def _name(self, found):
        """Returns the label of an index, or those of a row of 0 and 1."""
        if self.objective == "classes":
            return self.labels[found]
        return [self.labels[i] for i in found.nonzero()[0]]

"""Computes vectors of texts with a pretrained or fine-tuned model.

Shapes: N texts, B batch, T tokens, H hidden_size.
"""

import itertools
from collections.abc import Iterable, Sequence

import numpy as np
import tensorflow as tf

from albert_tf import filesystem
from albert_tf.data import batches, examples, text_data
from albert_tf.inference import remarks
from albert_tf.model import modeling, vector_heads
from albert_tf.tasks.recipes import Recipe
from albert_tf.training import evaluation
from albert_tf.weights import pretrained, task_heads

POOLINGS = (*vector_heads.POOLINGS, "pooled", "tokens")


class Embedder:
    r"""An encoder that maps texts to vectors.

    Args:
      model: what `read_pretrained` takes, or what it returns.
      pooling: "mean" of all tokens except [CLS] and [SEP], "mean_all" with
        them, "cls" for that of [CLS], the model's "pooled" output, or one
        vector for each of the "tokens". None for that of a model of
        run_embedding, whose vectors then have the length 1, else "mean".
      layer: layer to read the tokens from, counted from 0; -1 is the last.
        Unused for "pooled".
      max_seq_length: maximum length of a text, in tokens with [CLS] and [SEP];
        longer texts are truncated. None for that of run_embedding, else 512,
        or the model's positions if they are fewer.
      tokens_per_batch: number of tokens per batch, padding included.

    Raises:
      ValueError: if the model has no vocabulary, no such layer, or no pooler.

    Example:
      >>> from albert_tf import AlbertConfig, build_tokenizer, named_weights
      >>> words = "[PAD] [UNK] [CLS] [SEP] [MASK] good bad".split()
      >>> size = open("vocab.txt", "w").write("\n".join(words))
      >>> config = AlbertConfig(
      ...     vocab_size=7, hidden_size=8, num_attention_heads=2)
      >>> random = named_weights(modeling.AlbertEncoder(config))
      >>> embedder = Embedder(pretrained.Pretrained(
      ...     "random", {n: w.numpy() for n, w in random.items()}, config,
      ...     build_tokenizer(vocab_file="vocab.txt")))
      >>> embedder(["good", "bad bad"]).shape
      (2, 8)
    """

    def __init__(
        self,
        model: filesystem.Path | pretrained.Pretrained,
        *,
        pooling: str | None = None,
        layer: int = -1,
        max_seq_length: int | None = None,
        tokens_per_batch: int = Recipe.tokens_per_batch,
    ):
        if pooling is not None and pooling not in POOLINGS:
            raise ValueError(f"pooling={pooling!r}; wanted one of {POOLINGS}.")
        start = pretrained.complete(model)
        is_normalized = False
        if start.head and start.head.kind == task_heads.VECTORS:
            if max_seq_length is None:
                max_seq_length = start.head.lengths.get("max_seq_length")
            pooling = pooling or start.head.pooling
            is_own = pooling == start.head.pooling
            is_normalized = is_own and start.head.is_normalized
        pooling = pooling or "mean"
        unused = [] if pooling == "pooled" else [pretrained.POOLER]
        self.model = pretrained.build_model(
            lambda config: modeling.AlbertEncoder(config, dtype="float32"),
            start,
            unused,
        )
        self.tokenizer, self.pooling = start.tokenizer, pooling
        self.max_seq_length = start.config.choose_length(max_seq_length)
        if self.max_seq_length < 3:
            raise ValueError(
                f"max_seq_length={max_seq_length}; wanted at least 3, for "
                "[CLS], a token and [SEP]."
            )
        self.tokens_per_batch = tokens_per_batch
        config = start.config
        num_layers = config.num_hidden_layers * config.inner_group_num
        if not -num_layers <= layer < num_layers:
            raise ValueError(
                f"layer={layer}, but the model has {num_layers} layers; wanted "
                f"{-num_layers} to {num_layers - 1}."
            )
        self._remarks = remarks.Remarks()
        self._embed = build_function(
            self.model, pooling, layer, is_normalized=is_normalized
        )

    def __call__(self, texts: Iterable[str]):
        """Returns the vectors of texts: an array [N, H] float32.

        For "tokens", it is a list of a dict for each text: `vectors` [T, H],
        `ids` [T] of its tokens and their `offsets` [T, 2], the first character
        of each and the one after its last.

        Raises:
          ValueError: if `texts` is no list of texts.
        """
        texts = text_data.list_texts(texts)
        for i, text in enumerate(texts):
            if not isinstance(text, str):
                raise ValueError(f"texts[{i}] is {text!r:.80}; wanted a text.")
        rows, num_cut = self.encode(texts)
        if num_cut:
            self._remarks.say(
                "long",
                f"{num_cut} of {len(rows)} texts are truncated to "
                f"{self.max_seq_length} tokens.",
            )
        all_ids = list(itertools.chain.from_iterable(ids for ids, _ in rows))
        self._remarks.say_unknown(all_ids, self.tokenizer)
        vectors = self.compute(rows) if rows else []
        if self.pooling != "tokens":
            size = self.model.config.hidden_size
            return np.array(vectors, np.float32).reshape(-1, size)
        return [
            {"vectors": vector, "ids": ids, "offsets": offsets}
            for vector, (ids, offsets) in zip(vectors, rows, strict=True)
        ]

    def encode(self, texts: Sequence[str]) -> tuple[list, int]:
        """Encodes texts, without [CLS] and [SEP].

        Returns:
          A pair of ids and offsets (None but for "tokens") for each text; and
          the number of truncated texts.
        """
        rows: list[tuple]
        if self.pooling == "tokens":
            rows = [self.tokenizer.encode_with_offsets(text) for text in texts]
        else:
            encoded = examples.encode_texts(self.tokenizer, texts)
            rows = [(ids, None) for ids in encoded]
        limit = self.max_seq_length - 2
        num_cut = sum(len(ids) > limit for ids, _ in rows)
        return [(ids[:limit], o and o[:limit]) for ids, o in rows], num_cut

    def compute(self, rows: list, count=None) -> list:
        """Computes the vectors of N rows of `encode`.

        `count` is called with the number of texts of each batch.

        Returns:
          N arrays: [H], or [T, H] for "tokens".
        """
        vectors = compute(
            self._embed,
            self.tokenizer,
            [ids for ids, _ in rows],
            self.max_seq_length,
            self.tokens_per_batch,
            count,
        )
        if self.pooling != "tokens":
            return vectors
        pairs = zip(vectors, rows, strict=True)
        return [vector[: len(ids)] for vector, (ids, _) in pairs]


def build_function(model, pooling="mean", layer=-1, *, is_normalized=False):
    """Returns a compiled function from ids and mask [B, T] to vectors.

    These are [B, H], of length 1 if `is_normalized`, and [B, T - 1, H], without
    [CLS], for "tokens". They are read from a `layer`, but for "pooled".
    The weights must not change any more.
    """
    ints = tf.TensorSpec([None, None], tf.int32)
    config = model.config
    last = config.num_hidden_layers * config.inner_group_num - 1
    is_last = pooling == "pooled" or layer in (-1, last)

    @tf.function(input_signature=[ints, ints])
    def embed(ids, mask):
        reads_first = is_last and pooling in ("pooled", "cls")
        positions = tf.zeros_like(ids[:, :1]) if reads_first else None
        outputs = model(ids, mask, positions=positions)
        if pooling == "pooled":
            return outputs["pooled_output"]
        tokens = outputs["sequence_output"]  # [B, T, H]
        if not is_last:
            tokens = outputs["all_encoder_layers"][layer]
        if pooling == "tokens":
            return tokens[:, 1:]
        vectors = vector_heads.pool(tokens, mask, pooling)
        return tf.math.l2_normalize(vectors, -1) if is_normalized else vectors

    strategy = tf.distribute.get_strategy()
    if is_last:  # The only layer that is returned inside.
        with evaluation.holding_weights(strategy, model):
            embed.get_concrete_function()
    return embed


def compute(
    embed,
    tokenizer,
    rows,
    max_length,
    tokens_per_batch=Recipe.tokens_per_batch,
    count=None,
):
    """Computes the vectors of lines.

    `rows` are N lists of ids, without [CLS] and [SEP]. A line has at most
    `max_length` tokens and a batch `tokens_per_batch`, padding included.
    `count` is called with the number of lines of each batch.

    Returns:
      N arrays: for each line, its row of the result of `embed`.
    """
    pairs: list = [
        ([tokenizer.cls_id, *ids, tokenizer.sep_id], []) for ids in rows
    ]
    encoded = examples.Examples(*examples.join_pairs(pairs), {})
    plan = batches.plan_pass(
        encoded,
        max_length,
        tokens_per_batch,
        # Few shapes: TensorFlow keeps half a megabyte for each.
        is_static=True,
        tokens_per_shape=0,
    )
    vectors: dict = {}
    for features in batches.HostBatches(encoded, plan):
        values = embed(features["input_ids"], features["input_mask"]).numpy()
        indices = features["example_index"].numpy()
        vectors |= zip(indices, values, strict=True)
        if count:
            count((indices < len(rows)).sum())
    return [vectors[i] for i in range(len(rows))]

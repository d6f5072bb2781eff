"""Estimates the memory of a step from a config, without running it.

Counted are the tensors of the step of `training.replicas` on a CPU or GPU:
weights, the optimizer's slots, gradients, and the values that the backward pass
needs. Left out are the process itself, its libraries and graph, what the
allocator wastes, and the measurements of `training.plateau` between steps, a
forward pass over 512 tokens at a time. On a TPU, the compiler arranges memory;
`albert tpu_check` asks it.

Letters are those of `albert_tf.model.modeling`; all sizes are in bytes.
"""

import collections
import dataclasses

from albert_tf.model import parameters
from albert_tf.model.config import AlbertConfig
from albert_tf.training.settings import Settings

FLOAT32 = 4
GIB = 2**30
SIZES = {"float32": 4, "bfloat16": 2}
# Results of the operations that update a weight, which exist at one time.
VALUES_PER_UPDATE = 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Training:
    """Memory of a training step.

    Attributes:
      weights: float32 weights.
      slots: both moments of AdamW or LAMB.
      casts: the kernels in the data type of products, and packed.
      activations: what all layers keep for the backward pass.
      working: the largest of what the head, or the backward pass of one layer,
        uses in addition.
      gradients: the larger of the gradients of each use of shared kernels,
        and those of all weights with the largest update.
    """

    weights: int
    slots: int
    casts: int
    activations: int
    working: int
    gradients: int

    @property
    def peak(self) -> int:
        """The larger of the beginning and the end of the backward pass."""
        largest = max(self.activations + self.working, self.gradients)
        return self.weights + self.slots + self.casts + largest


def estimate_training(
    config: AlbertConfig,
    batch_size: int,
    max_seq_length: int,
    max_predictions_per_seq: int | None,
    *,
    compute_dtype: str = "float32",
    remat: bool = False,
    num_sampled_pieces: int | None = None,
) -> Training:
    """Estimates the memory of a training step of one replica.

    Args:
      config: an AlbertConfig.
      batch_size: sequences of a replica, or of a part of its batch.
      max_seq_length: tokens per sequence.
      max_predictions_per_seq: masked tokens per sequence; with None, the last
        layer computes all tokens, and there is no masked LM.
      compute_dtype: "float32" or "bfloat16".
      remat: whether layers, each with all its blocks, are computed again in
        the backward pass.
      num_sampled_pieces: as for `heads.AlbertForPreTraining`.
    """
    size = SIZES[compute_dtype]
    num_layers, num_inner = config.num_hidden_layers, config.inner_group_num
    num_rows = batch_size * max_seq_length
    num_masked = batch_size * (max_predictions_per_seq or 0)
    shape = config, batch_size, max_seq_length, size
    block = size_of_block(*shape)
    last_block = size_of_block(*shape, max_predictions_per_seq)
    uses = size_of_uses(config, size, remat)
    # Gradients of the scores before and after softmax, and of the inner layer.
    backward = num_rows * (
        max_seq_length * config.num_attention_heads * 2 * size
        + 2 * config.intermediate_size * size
    )
    num_pieces = count_pieces(config, num_sampled_pieces, num_masked)
    # Logits and probabilities, or probabilities and the logits' gradient; all
    # three only if other programs delay what reads the logits.
    head = num_masked * num_pieces * 2 * FLOAT32
    activations = (num_layers * num_inner - 1) * block + last_block
    if remat:
        # All blocks of a layer are computed again at once, but for the last,
        # which is kept.
        activations = num_layers * num_rows * config.hidden_size * size
        backward += num_inner * block + uses
        head += (num_inner - 1) * block + last_block
    num_weights = sum(parameters.count_parameters(config).values())
    h = config.hidden_size
    embeddings = config.vocab_size * config.embedding_size
    largest = max(embeddings, h * config.intermediate_size, h * h)
    return Training(
        weights=FLOAT32 * num_weights,
        slots=2 * FLOAT32 * num_weights,
        casts=size_of_casts(config, size),
        activations=activations,
        working=max(head, backward),
        gradients=max(
            uses, FLOAT32 * (num_weights + VALUES_PER_UPDATE * largest)
        ),
    )


def count_pieces(config, num_sampled_pieces, num_masked):
    """Returns the number of pieces in the softmax of `heads.sample_pieces`."""
    num_sampled = num_sampled_pieces or config.vocab_size
    return min(config.vocab_size, max(num_sampled, num_masked))


def warn_of_training(
    config: AlbertConfig,
    settings: Settings,
    num_tokens: int,
    num_predictions: int | None,
    *,
    available: int | None,
    compute_dtype: str = "float32",
    num_choices: int = 1,
    num_sampled_pieces: int | None = None,
) -> str | None:
    """Returns a warning if a training step needs more memory than there is.

    Args:
      config: an AlbertConfig.
      settings: the batch, its parts, and whether layers are computed again.
      num_tokens: tokens per sequence.
      num_predictions: masked tokens per sequence, as for `estimate_training`.
      available: bytes; None if unknown.
      compute_dtype: "float32" or "bfloat16".
      num_choices: sequences per example.
      num_sampled_pieces: as for `estimate_training`.
    """
    if available is None:
        return None
    batch_size = settings.train_batch_size
    first = settings.gradient_accumulation_steps

    def peak(num_parts, remat):
        return estimate_training(
            config,
            batch_size // num_parts * num_choices,
            num_tokens,
            num_predictions,
            compute_dtype=compute_dtype,
            remat=remat,
            num_sampled_pieces=num_sampled_pieces,
        ).peak

    needed = peak(first, settings.remat)
    if needed <= available:
        return None
    fitting = (
        f"gradient_accumulation_steps={number}{' remat=True' * remat} needs "
        f"{size / GIB:.1f} GiB."
        for remat in (settings.remat, True)
        for number in range(first, batch_size + 1)
        if batch_size % number == 0
        and (size := peak(number, remat)) <= available
    )
    advice = next(fitting, "Train a smaller model, or on shorter sequences.")
    return (
        f"A training step needs about {needed / GIB:.1f} GiB of memory, "
        f"but {available / GIB:.1f} GiB are available: the system may end this "
        f"program without a message. {advice}"
    )


def size_of_block(config, batch_size, num_tokens, size, num_predictions=None):
    """Returns what a block keeps for its backward pass.

    Of [B * T, H]: its input, keys and values. Of Q tokens, [B * Q, H]: queries,
    the context, the sum before each norm, and the first norm's output;
    [B * Q, F]: the inner layer before and after its activation; [B, N, Q, T]:
    the probabilities, before and after dropout. Dropout also keeps a mask of
    one byte for each value. The Q tokens are all T, or predictions and [CLS],
    whose input is kept, too.
    """
    h, f = config.hidden_size, config.intermediate_size
    num_queries, row = num_tokens, size * (5 * h + 2 * f)
    if num_predictions is not None:
        num_queries = num_predictions + 1
        row += size * h
    if config.hidden_dropout_prob:
        row += 2 * h
    score = size
    if config.attention_probs_dropout_prob:
        score += 1 + size
    row += num_tokens * config.num_attention_heads * score
    return batch_size * (num_tokens * size * 3 * h + num_queries * row)


def size_of_casts(config, size, with_heads=True):
    """Returns the size of the packed kernels and, in bfloat16, of all others.

    Weights that are used in float32 as they are need no copy. Of the word
    embeddings, only the masked-LM head needs one.
    """
    h, f = config.hidden_size, config.intermediate_size
    num_attention, num_ffn = parameters.count_blocks(config)
    if size == FLOAT32:
        return size * num_attention * 3 * h * h
    kernels = num_attention * 4 * h * h + num_ffn * 2 * h * f + h * h
    e = config.embedding_size
    kernels += e * h * (e != h)
    if with_heads:
        kernels += e * (config.vocab_size + h)
    return size * kernels


def size_of_uses(config, size, remat):
    """Returns the gradients of each use of kernels that are used repeatedly.

    They are added when all are there, or, in recomputed layers that share all
    weights, one by one in float32.
    """
    h, f = config.hidden_size, config.intermediate_size
    total = 0
    for kernels, group_of in (
        (4 * h * h, config.attention_group),
        (2 * h * f, config.ffn_group),
    ):
        uses = collections.Counter(
            map(group_of, range(config.num_hidden_layers))
        )
        for num_uses in uses.values():
            if num_uses > 1:
                is_summed = remat and len(config.count_uses()) == len(uses)
                # A last layer that is not recomputed is added at the end.
                total += kernels * (
                    FLOAT32 + size if is_summed else num_uses * size
                )
    return config.inner_group_num * total


def estimate_inference(
    config: AlbertConfig,
    batch_size: int,
    max_seq_length: int,
    *,
    compute_dtype: str = "float32",
) -> int:
    """Estimates the memory of the encoder in a forward pass.

    Counted are the weights, their copies in the data type of products, and the
    values of one layer: either of attention, which are its input, queries,
    keys and values before and after they are transposed, and all scores; or of
    the feed-forward layers.
    """
    size = SIZES[compute_dtype]
    h, f = config.hidden_size, config.intermediate_size
    scores = max_seq_length * config.num_attention_heads
    cast = size if size != FLOAT32 else 0
    attention = 7 * h * size + scores * (FLOAT32 + cast)
    ffn = 2 * (h + f) * size
    return (
        FLOAT32 * parameters.count_encoder(config)
        + size_of_casts(config, size, with_heads=False)
        + batch_size * max_seq_length * max(attention, ffn)
    )

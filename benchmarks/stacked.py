"""Pretrains many ALBERTs of one shape at once, as one stack, with PyTorch.

A small model leaves most of a GPU idle. Here every weight has a leading axis M,
and one batched matrix product serves all models. They compute what ours do,
without dropout; on a GPU, matrix products are in bfloat16.

Shapes: M models, B batch, T tokens, P predictions, V vocab_size,
E embedding_size, H hidden_size, N heads, D = H / N.
"""

import collections
import dataclasses
import time

import torch
from torch.nn import functional

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
COMPUTE = torch.bfloat16 if DEVICE == "cuda" else torch.float32
HELD_OUT_BATCH = 64
FIRST_EVALUATION = 100  # Steps.
WARMUP = 0.1  # Share of the steps.
CLIP_NORM = 1.0
MUON_MOMENTUM = 0.95
MUON_SCALE = 0.2  # Twice ours, which has a kernel_share of 0.5.
MUON_POLYNOMIAL = (3.4445, -4.7750, 2.0315)
MUON_ITERATIONS = 5
DECAYED = "kernel", "embeddings"  # Ends of names.


def to_device(arrays):
    """Returns tensors of a dict of arrays of integers."""
    return {
        name: torch.from_numpy(array.astype("int32")).to(DEVICE)
        for name, array in arrays.items()
    }


def take(data, rows):
    """Returns the features of some records, [M, B, ...], by name.

    Args:
      data: dict of tensors, as `studies.unpack` makes them.
      rows: [M, B], indices.
    """
    batch = {name: x[rows].long() for name, x in data.items()}
    ends = batch.pop("segment_ends")  # [M, B, 2]
    token = torch.arange(batch["input_ids"].shape[-1], device=DEVICE)
    mask = token < ends[..., 1:]  # [M, B, T]
    num_predictions = batch.pop("num_predictions")[..., None]  # [M, B, 1]
    place = torch.arange(batch["masked_lm_ids"].shape[-1], device=DEVICE)
    return batch | {
        "input_mask": mask,
        "segment_ids": ((token >= ends[..., :1]) & mask).float(),
        "masked_lm_weights": (place < num_predictions).float(),  # [M, B, P]
    }


def dense(x, weights, name):
    """Returns the product with a kernel, plus its bias: [M, ?, width]."""
    kernel, bias = (weights[f"{name}/{kind}"] for kind in ("kernel", "bias"))
    return torch.baddbmm(
        bias.to(COMPUTE)[:, None], x.to(COMPUTE), kernel.to(COMPUTE)
    )


def normalize(x, weights, name):
    """Returns the layer norm of [M, ?, width], in float32."""
    x = functional.layer_norm(x.float(), x.shape[-1:], eps=1e-12)
    gamma, beta = (weights[f"{name}/{kind}"] for kind in ("gamma", "beta"))
    return x * gamma[:, None] + beta[:, None]


def gelu(x):
    """Returns the tanh form, as ours."""
    return functional.gelu(x, approximate="tanh")


def embed(config, weights, features):
    """Returns the input of the first layer, [M, B * T, H]."""
    ids = features["input_ids"]
    num_models, batch_size, num_tokens = ids.shape
    words = weights["word_embeddings"].flatten(0, 1)  # [M * V, E]
    first = torch.arange(num_models, device=DEVICE) * config.vocab_size
    ids = ids.flatten(1) + first[:, None]  # [M, B * T]
    x = functional.embedding(ids, words)  # [M, B * T, E]
    segments = weights["segment_embeddings"]  # [M, 2, E]
    is_second = features["segment_ids"].reshape(num_models, -1, 1)
    x = x + segments[:, :1] * (1 - is_second) + segments[:, 1:] * is_second
    positions = weights["position_embeddings"][:, :num_tokens]
    x = x + positions.repeat(1, batch_size, 1)
    return dense(normalize(x, weights, "norm"), weights, "projection")


def encode(config, weights, features, depths=None):
    """Returns the output of the last layer, [M, B, T, H].

    `depths` [M] are the numbers of layers that the models compute; None: all.
    """
    shape = features["input_ids"].shape
    num_tokens = shape[-1]
    size = config.hidden_size // config.num_attention_heads
    mask = features["input_mask"].reshape(-1, 1, 1, num_tokens)  # [M * B, ...]
    x = last = embed(config, weights, features)
    for layer in range(config.num_hidden_layers):
        group = config.attention_group(layer)
        query, key, value = (
            dense(x, weights, f"{group}/{kind}")
            .reshape(-1, num_tokens, config.num_attention_heads, size)
            .transpose(1, 2)  # [M * B, N, T, D]
            for kind in ("query", "key", "value")
        )
        context = functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask
        )
        context = context.transpose(1, 2).reshape(x.shape)  # [M, B * T, H]
        x = x + dense(context, weights, f"{group}/attention_output")
        x = normalize(x, weights, f"{group}/norm_1")
        inner = gelu(dense(x, weights, f"{group}/intermediate"))
        x = x + dense(inner, weights, f"{group}/output")
        x = normalize(x, weights, f"{group}/norm_2")
        if depths is None:
            last = x
        else:
            last = torch.where((depths > layer)[:, None, None], x, last)
    return last.reshape(*shape, -1)


def predict(weights, features, encoded):
    """Returns logits of pieces [M, B * P, V] and of the order [M, B, 2]."""
    num_tokens, width = encoded.shape[2:]
    pooled = torch.tanh(dense(encoded[:, :, 0], weights, "pooler"))
    order = dense(pooled, weights, "sentence_order").float()
    positions = features["masked_lm_positions"]  # [M, B, P]
    batch = torch.arange(positions.shape[1], device=DEVICE)[:, None]
    positions = (positions + batch * num_tokens).flatten(1)  # [M, B * P]
    x = encoded.flatten(1, 2).gather(
        1, positions[..., None].expand(-1, -1, width)
    )
    x = normalize(gelu(dense(x, weights, "masked_lm")), weights, "masked_norm")
    words = weights["word_embeddings"].to(COMPUTE)
    bias = weights["output_bias"].to(COMPUTE)[:, None]
    return torch.baddbmm(bias, x.to(COMPUTE), words.transpose(1, 2)), order


def entropies(logits, labels):
    """Returns the cross-entropy of each label, [M, ?]."""
    losses = functional.cross_entropy(
        logits.flatten(0, 1).float(), labels.flatten(), reduction="none"
    )
    return losses.reshape(len(logits), -1)


def compute_losses(config, weights, features, depths=None):
    """Returns the sum of both losses for each model, [M]."""
    encoded = encode(config, weights, features, depths)
    logits, order = predict(weights, features, encoded)
    shares = features["masked_lm_weights"].flatten(1)  # [M, B * P]
    masked = entropies(logits, features["masked_lm_ids"]) * shares
    sentence = entropies(order, features["next_sentence_labels"])
    return masked.sum(1) / (shares.sum(1) + 1e-5) + sentence.mean(1)


@torch.no_grad()
def evaluate(config, weights, data):
    """Returns metrics of the held-out records: dict from name to [M].

    The cosine is that of two tokens of a sequence, of all pairs of tokens of
    the first four sequences in each batch.
    """
    num_models = len(weights["output_bias"])
    num_batches = len(data["input_ids"]) // HELD_OUT_BATCH
    rows = torch.arange(num_batches * HELD_OUT_BATCH, device=DEVICE)
    sums: collections.Counter = collections.Counter()
    count: torch.Tensor | int = 0
    for part in rows.split(HELD_OUT_BATCH):
        features = take(data, part.expand(num_models, -1))
        encoded = encode(config, weights, features)
        logits, order = predict(weights, features, encoded)
        labels = features["masked_lm_ids"].flatten(1)  # [M, B * P]
        shares = features["masked_lm_weights"].flatten(1)
        count = count + shares.sum(1)
        right = features["next_sentence_labels"].squeeze(-1)  # [M, B]
        vectors = functional.normalize(encoded[:, :4], dim=-1)
        cosines = vectors @ vectors.transpose(-1, -2)  # [M, 4, T, T]
        for name, value in {
            "accuracy": ((logits.argmax(-1) == labels) * shares).sum(1),
            "loss": (entropies(logits, labels) * shares).sum(1),
            "sentence_order": (order.argmax(-1) == right).float().mean(1),
            "cosine": cosines.mean((1, 2, 3)),
        }.items():
            sums[name] = sums[name] + value
    divisors = {"accuracy": count, "loss": count}
    return {
        name: torch.divide(total, divisors.get(name, num_batches)).tolist()
        for name, total in sums.items()
    }


class Optimizer:
    """AdamW or LAMB without bias correction, or Muon; clips the gradients.

    They are those of `albert_tf.training.optimization`, Muon with a
    `kernel_share` of 0.5. Each argument but the last has a value for each of
    the M models.

    Args:
      weights: dict of [M, ...].
      learning_rate: peak learning rates.
      optimizer: "adamw", "lamb" or "muon".
      kernel_share: factors of the rates of the kernels that Muon trains.
      weight_decay: coefficients of the weights added to the update.
      beta_2: decay rate of the second moment.
    """

    def __init__(
        self,
        weights,
        *,
        learning_rate,
        optimizer,
        kernel_share,
        weight_decay,
        beta_2,
    ):
        self.weights, self.beta_2 = weights, beta_2
        self.rates, self.kernel_share, self.weight_decay = (
            torch.tensor(x, dtype=torch.float32, device=DEVICE)
            for x in (learning_rate, kernel_share, weight_decay)
        )
        self.is_lamb, self.is_muon = (
            torch.tensor([x == kind for x in optimizer], device=DEVICE)
            for kind in ("lamb", "muon")
        )
        self.has_lamb = "lamb" in optimizer
        self.moments = {
            name: (torch.zeros_like(x), torch.zeros_like(x))
            for name, x in weights.items()
        }
        self.momenta = {
            name: torch.zeros_like(x)
            for name, x in weights.items()
            if "muon" in optimizer and is_muons(name)
        }

    @torch.no_grad()
    def update(self, share):
        """Takes a step at a share of the peak rates."""
        norms = sum(  # [M], squared
            x.grad.flatten(1).square().sum(1) for x in self.weights.values()
        )
        factors = (CLIP_NORM / norms.sqrt().clamp(min=1e-30)).clamp(max=1)
        for name, x in self.weights.items():
            shape = [-1] + [1] * (x.dim() - 1)
            gradient = x.grad.mul_(factors.reshape(shape))
            change = self.adam(name, gradient)
            if name in self.momenta:
                is_muon = self.is_muon.reshape(shape)
                change = torch.where(is_muon, self.muon(name, gradient), change)
            rates = self.rates * share
            if name.endswith(DECAYED):
                change.add_(x * self.weight_decay.reshape(shape))
                if self.has_lamb:
                    size, length = (
                        y.flatten(1).norm(dim=1) for y in (x, change)
                    )
                    is_scaled = self.is_lamb & (size > 0) & (length > 0)
                    rates = rates * torch.where(is_scaled, size / length, 1)
            x.sub_(change.mul_(rates.reshape(shape)))
            x.grad = None

    def adam(self, name, gradient):
        """Updates both moments; returns m / (sqrt(v) + epsilon)."""
        m, v = self.moments[name]
        m.lerp_(gradient, 0.1)
        v.mul_(self.beta_2)
        v.addcmul_(gradient, gradient, value=1 - self.beta_2)
        return m / (v.sqrt() + 1e-6)

    def muon(self, name, gradient):
        """Updates the momentum; returns an orthogonal matrix near it."""
        m = self.momenta[name]
        m.lerp_(gradient, 1 - MUON_MOMENTUM)
        ahead = torch.lerp(m, gradient, 1 - MUON_MOMENTUM)
        scale = MUON_SCALE * max(gradient.shape[1:]) ** 0.5
        scales = scale * self.kernel_share.reshape(-1, 1, 1)
        return scales * orthogonalize(ahead)


def is_muons(name):
    """Returns whether Muon trains a weight: ours calls this one no kernel."""
    return name.endswith("kernel") and name != "sentence_order/kernel"


def orthogonalize(x):
    """Returns matrices near [M, rows, columns] with singular values near 1."""
    is_tall = x.shape[1] > x.shape[2]
    if is_tall:
        x = x.transpose(1, 2)  # [M, n, m], n <= m
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-30)
    a, b, c = MUON_POLYNOMIAL
    for _ in range(MUON_ITERATIONS):
        square = x @ x.transpose(1, 2)
        x = a * x + (b * square + c * (square @ square)) @ x
    return x.transpose(1, 2) if is_tall else x


def train(
    config,
    values,
    own,
    orders,
    depths,
    records,
    *,
    batch_size,
    num_steps,
    num_warmup_steps,
    beta_2,
    num_held_out,
    eval_steps,
    eval_layers,
    max_seconds,
):
    """Trains M models; yields steps, what they reach, and weights.

    What they reach is a dict from a number of layers to what `evaluate`
    returns.

    Args:
      config: an AlbertConfig, without dropout and with a projection.
      values: dict of arrays [M, ...], as `studies.build` makes them.
      own: list of M dicts, arguments of `Optimizer` with a value each.
      orders: [M, num_steps * batch_size], the records that a model sees.
      depths: [M, num_steps], the layers that it computes; None: all.
      records: dicts of arrays, for training and held out.
      batch_size: sequences in a step.
      num_steps: number of steps, after which the rate is 0.
      num_warmup_steps: number of steps of warmup; None: a tenth.
      beta_2: decay rate of the second moment.
      num_held_out: number of held-out sequences that are scored.
      eval_steps: number of steps between evaluations.
      eval_layers: numbers of layers to evaluate with, besides all; layers must
        share their weights.
      max_seconds: number of seconds after which training stops.
    """
    start = time.monotonic()
    data, held_out = map(to_device, records)
    held_out = {name: x[:num_held_out] for name, x in held_out.items()}
    weights = {
        name: torch.from_numpy(value).to(DEVICE).requires_grad_()
        for name, value in values.items()
    }
    orders = torch.from_numpy(orders).to(DEVICE)
    if depths is not None:
        depths = torch.from_numpy(depths).to(DEVICE)
    configs = {
        count: dataclasses.replace(config, num_hidden_layers=count)
        for count in (config.num_hidden_layers, *eval_layers)
    }

    def evaluate_all():
        return {
            count: evaluate(some, weights, held_out)
            for count, some in configs.items()
        }

    settings = {name: [one[name] for one in own] for name in own[0]}
    updater = Optimizer(weights, **settings, beta_2=beta_2)
    warmup = num_warmup_steps or int(num_steps * WARMUP)
    yield 0, evaluate_all(), weights
    for step, rows in enumerate(orders.split(batch_size, dim=1)):
        features = take(data, rows)
        some = None if depths is None else depths[:, step]
        compute_losses(config, weights, features, some).sum().backward()
        updater.update(step / warmup if step < warmup else 1 - step / num_steps)
        done = step + 1
        is_over = time.monotonic() - start > max_seconds or done == num_steps
        if is_over or done == FIRST_EVALUATION or done % eval_steps == 0:
            yield done, evaluate_all(), weights
        if is_over:
            return

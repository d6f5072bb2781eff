r"""Pretrains with transformers, from our initial values and from its own.

  albert initialize --albert_config_file=configs/model/small.json \
    --spm_model_file=30k-clean.model --input_file=novels.txt --to=start
  python -m benchmarks.transformers_start --start=start \
    --train_text=novels.txt --heldout_text=novels_valid.txt

Masks are those of `DataCollatorForLanguageModeling`, of single pieces; 15% of
held-out ones. Both models see the same batches. A step of
configs/model/small.json takes a second of a core. Needs torch and
transformers.
"""

import dataclasses
import itertools

import numpy as np

from albert_tf import flags
from albert_tf.flags import flag

MARKS = (100, 250, 500, 750, 1000, 1500, 2000)
NUM_HELD_OUT = 256  # Sequences.


@dataclasses.dataclass(frozen=True, kw_only=True)
class BenchmarkFlags(flags.Flags):
    """Model, texts, and settings that are the same for both models."""

    start: str = flag(
        required=True, help="Folder that `albert initialize` wrote."
    )
    train_text: str = flag(required=True, help="Text to train on.")
    heldout_text: str = flag(required=True, help="Text to score on.")
    num_train_steps: int = flag(1000, "Number of steps.", at_least=1)
    train_batch_size: int = flag(16, "Sequences in a step.", at_least=1)
    max_seq_length: int = flag(128, "Tokens in a sequence.", at_least=8)
    mlm_probability: float = flag(
        0.4, "Share of masked pieces.", above=0, at_most=1
    )
    learning_rate: float = flag(4e-4, "Peak rate of AdamW.", above=0)
    random_seed: int = flag(1, "Seed of weights, masks and order.")


def run(args):
    """Trains both models and prints a row for each."""
    import torch
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(args.start)
    collate, collate_held_out = (
        transformers.DataCollatorForLanguageModeling(
            tokenizer, mlm_probability=share
        )
        for share in (args.mlm_probability, 0.15)
    )
    train, held_out = (
        read_sequences(path, tokenizer, args.max_seq_length)
        for path in (args.train_text, args.heldout_text)
    )
    torch.manual_seed(0)
    test = collate_held_out(held_out[:NUM_HELD_OUT])
    config = transformers.AutoConfig.from_pretrained(args.start)
    model_class = transformers.AlbertForMaskedLM
    builders = {
        "own initial values": lambda: model_class(config),
        "neighbors": lambda: model_class.from_pretrained(args.start),
    }
    runs = []
    for build in builders.values():
        torch.manual_seed(args.random_seed)
        runs.append(pretrain(args, build(), train, test, collate))
    # In turns, so that an interrupted run compares them, too.
    for results in zip(*runs, strict=True):
        for name, (step, accuracy, loss) in zip(builders, results, strict=True):
            print(f"{name}: step {step}: {accuracy:.1%}, loss {loss:.2f}")


def read_sequences(path, tokenizer, num_tokens):
    """Returns a list of sequences of ids, cut out of the whole text."""
    with open(path, encoding="utf-8") as file:
        lines = [line for line in file if line.strip()]
    rows = tokenizer(lines, add_special_tokens=False)["input_ids"]
    ids = list(itertools.chain.from_iterable(rows))
    size = num_tokens - 2
    starts = range(0, len(ids) - size, size)
    first, last = tokenizer.cls_token_id, tokenizer.sep_token_id
    return [[first, *ids[i : i + size], last] for i in starts]


def pretrain(args, model, train, test, collate):
    """Trains; yields the step, held-out accuracy and loss at each of MARKS."""
    import torch

    order = np.random.default_rng(args.random_seed)
    optimizer = torch.optim.AdamW(model.parameters(), args.learning_rate)
    warmup = max(1, args.num_train_steps // 10)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: min(
            (step + 1) / warmup, 1 - step / (args.num_train_steps + 1)
        ),
    )
    for step in range(1, args.num_train_steps + 1):
        rows = order.integers(len(train), size=args.train_batch_size)
        torch.manual_seed(args.random_seed + step)  # Of the masks.
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(**collate([train[row] for row in rows])).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        if step in MARKS or step == args.num_train_steps:
            yield step, *score(model, test)


def score(model, test):
    """Returns accuracy and mean loss on the masked pieces of sequences."""
    import torch

    hits, losses = [], []
    with torch.inference_mode():
        for part in range(0, NUM_HELD_OUT, 32):
            rows = {name: x[part : part + 32] for name, x in test.items()}
            labels = rows.pop("labels")
            logits = model(**rows).logits[labels >= 0].float()
            wanted = labels[labels >= 0]
            hits.append((logits.argmax(-1) == wanted).float())
            losses.append(
                torch.nn.functional.cross_entropy(
                    logits, wanted, reduction="none"
                )
            )
    return [float(torch.cat(parts).mean()) for parts in (hits, losses)]


if __name__ == "__main__":
    flags.launch(run, BenchmarkFlags)

"""Text files -> pretraining records, by worker processes.

The bytes do not depend on the number of workers: the work is cut into tasks
by the data alone, every task has a seed of its own, and the results are
written in the order of the tasks. Beside the output stands a hidden folder
with the token store, the plan of the shard in work, and a note of what is
finished, so that a run which was interrupted goes on with the next shard.
"""

import collections
import dataclasses
import functools
import logging
import math
import os
import re

import numpy as np

from albert_tf import filesystem, ownership, progress
from albert_tf.data import workers
from albert_tf.data.pretraining import (
    corpus,
    limits,
    masking,
    records,
    sequences,
    sidecars,
    unfinished,
)
from albert_tf.text import tokenization

# Part of the result, as the seeds count tasks.
PART_TOKENS = 1 << 20
BATCH_TOKENS = 1 << 17
# Raised whenever the same settings give other records.
VERSION = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """What decides the records, beside the text.

    Attributes:
      tokenizer: pairs of the arguments of `tokenization.build_tokenizer`.
      sequence: what a sequence is.
      masking: what is masked in it.
      dupe_factor: times that each document is used.
      seed: of all randomness.
    """

    tokenizer: tuple
    sequence: sequences.SequenceRule
    masking: masking.MaskingRule
    dupe_factor: int = 40
    seed: int = 12345

    def __post_init__(self):
        rule, masks = self.sequence, self.masking
        length = rule.max_seq_length
        for name, value, least, most in (
            ("max_seq_length", length, 5, limits.MAX_SEQ_LENGTH),
            ("short_seq_prob", rule.short_seq_prob, 0, 1),
            ("max_predictions_per_seq", masks.max_predictions, 1, length),
            ("masked_lm_prob", masks.masked_lm_prob, 0, 1),
            ("ngram", masks.ngram, 1, limits.MAX_NGRAM),
            ("dupe_factor", self.dupe_factor, 1, limits.MAX_DUPE_FACTOR),
            ("random_seed", self.seed, 0, math.inf),
        ):
            if not least <= value <= most:  # Nor is NaN.
                raise ValueError(
                    f"{name} must be {least} or more, and {most} at most; got "
                    f"{value}."
                )
        if not masks.masked_lm_prob:
            raise ValueError("masked_lm_prob is 0: nothing would be masked.")
        if rule.sentence_objective not in sidecars.OBJECTIVES:
            raise ValueError(
                f"sentence_objective must be one of {sidecars.OBJECTIVES}; got "
                f"{rule.sentence_objective!r}."
            )


@dataclasses.dataclass
class _Worker:
    """Does the tasks; each process has one, which opens the files itself."""

    settings: Settings
    folder: filesystem.Path

    def __reduce__(self):
        return _Worker, (self.settings, self.folder)

    @functools.cached_property
    def tokenizer(self):
        return tokenization.build_tokenizer(**dict(self.settings.tokenizer))

    @functools.cached_property
    def vocabulary(self):
        return sequences.Vocabulary.from_tokenizer(self.tokenizer)

    @functools.cached_property
    def store(self):
        return corpus.open_store(self.folder, self.tokenizer.vocab_size)

    def encode(self, block):
        """As `corpus.encode_block`."""
        return corpus.encode_block(
            block, self.tokenizer, self.settings.sequence.max_tokens
        )

    def plan(self, documents, seed):
        """As `sequences.plan_documents`."""
        return sequences.plan_documents(
            self.store,
            documents,
            self.settings.sequence,
            self.vocabulary.is_word_start,
            seed,
        )

    def build(self, plan, seed):
        """Serialized examples, and counts for the statistics."""
        features = sequences.build_features(
            self.store,
            plan,
            self.settings.sequence,
            self.settings.masking,
            self.vocabulary,
            np.random.default_rng(seed),
        )
        counts = {
            "sequences": len(plan),
            "tokens": int(features["input_mask"].sum()),
            "masked": int(features["masked_lm_weights"].sum()),
            "swapped": int(plan["label"].sum()),
            "short": int(plan["is_short"].sum()),
        }
        return records.encode_examples(features), counts


def output_names(output_file: str, num_shards: int) -> list[str]:
    """The files to write.

    Args:
      output_file: names, separated by commas; a single one for several shards.
      num_shards: above 1, the files are NAME-00000-of-NNNNN.tfrecord.
    """
    names = [name.strip() for name in output_file.split(",") if name.strip()]
    resolved = {os.path.realpath(name) for name in names}
    if not names or len(resolved) < len(names):
        raise ValueError(
            f"output_file must name different files; got {output_file!r}."
        )
    for name in names:
        if name.endswith("/") or os.path.isdir(name):
            raise ValueError(f"output_file: {name} is a folder; wanted a file.")
    if num_shards == 1:
        return names
    if not 1 < num_shards <= limits.MAX_NUM_SHARDS or len(names) > 1:
        raise ValueError(
            "Give either one output_file and num_shards, or a list of files; "
            f"got {len(names)} files and num_shards {num_shards}."
        )
    stem = re.sub(r"\.(tfrecord|tf_record)$", "", names[0])
    ending = names[0].removeprefix(stem) or ".tfrecord"
    return [
        f"{stem}-{i:05}-of-{num_shards:05}{ending}" for i in range(num_shards)
    ]


def written_files(outputs: list[str]) -> list[str]:
    """All files that writing some record files writes."""
    return [
        *outputs,
        *(f"{path}.incomplete" for path in outputs),
        *map(sidecars.sidecar_path, outputs),
    ]


def create_shards(
    inputs: list[str],
    outputs: list[str],
    settings: Settings,
    *,
    num_workers: int = 1,
    flags: dict | None = None,
    has_progress: bool = True,
) -> dict:
    """Writes record files, each with documents from all of the input.

    Each file's sidecar (see `sidecars.read_sidecar`) is written at the end.

    Args:
      inputs: names of text files: UTF-8, a sentence a line, a blank line
        between documents.
      outputs: names of the record files.
      settings: the `Settings`.
      num_workers: processes that tokenize and build; with 1, this one does.
      flags: for the sidecar; what the program was called with.
      has_progress: whether a line on stderr shows how far it is.

    Returns:
      The statistics in the sidecar.

    Raises:
      ValueError: if there is no text, or for NSP only one document.
      BlockingIOError: if another process writes the same files.
    """
    _check_inputs(inputs)
    tokenizer = tokenization.build_tokenizer(**dict(settings.tokenizer))
    fingerprint = unfinished.fingerprint(
        inputs,
        outputs,
        dataclasses.asdict(settings),
        tokenizer.settings,
        VERSION,
    )
    with (
        ownership.owning(*unfinished.lock_names(outputs)),
        unfinished.Unfinished(outputs, fingerprint) as state,
    ):
        _write_outputs(
            inputs, outputs, settings, state, num_workers, has_progress
        )
        statistics = _statistics(state.counts, state.shards.values())
        _warn_of_empty_files(outputs, state)
        description = {
            "format": sidecars.FORMAT,
            "max_seq_length": settings.sequence.max_seq_length,
            "max_predictions_per_seq": settings.masking.max_predictions,
            "num_predictions": settings.masking.num_predictions,
            "sentence_objective": settings.sequence.sentence_objective,
            "tokenizer": tokenizer.settings,
            "flags": flags or {},
            "statistics": statistics,
        }
        _write_sidecars(outputs, state.shards, description)
        state.remove()
    return statistics


def _write_outputs(inputs, outputs, settings, state, num_workers, has_progress):
    """Writes all record files that an interrupted run did not finish."""
    worker = _Worker(settings, state.folder)
    vocab_size = worker.tokenizer.vocab_size
    with workers.ordered_map(num_workers, worker) as run:
        counts = state.counts
        if not counts or not corpus.is_store(state.folder, vocab_size, counts):
            counts = _tokenize(inputs, worker, run, has_progress)
        _check_counts(counts, inputs, settings)
        state.keep_counts(counts)
        # Older runs said something of files that are written anew.
        for path in filter(filesystem.exists, _sidecar_paths(outputs)):
            filesystem.remove(path)
        num_tokens = counts["input_tokens"] * settings.dupe_factor
        tokens = progress.Progress(
            "writing", num_tokens, "tokens", has_progress
        )
        for index, output in enumerate(outputs):
            if not state.is_finished(output):
                result = _write_shard(
                    output, (index, len(outputs)), worker, run, tokens
                )
                state.keep_shard(output, result)
        tokens.finish()


def _warn_of_empty_files(outputs, state):
    empty = [path for path in outputs if not state.shards[path]["sequences"]]
    if empty:
        logging.warning(
            "%d of %d files have no sequence, such as %s: %d documents do not "
            "fill so many.",
            len(empty),
            len(outputs),
            empty[0],
            state.counts["input_documents"],
        )


def _write_sidecars(outputs, shards, description):
    for sidecar in _sidecar_paths(outputs):
        files = [f for f in outputs if sidecars.sidecar_path(f) == sidecar]
        own = {
            "files": [os.path.basename(path) for path in files],
            "num_records": [shards[path]["sequences"] for path in files],
            "num_bytes": [shards[path]["num_bytes"] for path in files],
        }
        sidecars.write_sidecar(sidecar, description | own)


def _sidecar_paths(outputs):
    return set(map(sidecars.sidecar_path, outputs))


# The two phases.


def _tokenize(inputs, worker, run, has_progress):
    """Writes the token store; returns its counts."""
    num_bytes = sum(map(filesystem.size, inputs))
    done = progress.Progress("tokenizing", num_bytes, "bytes", has_progress)

    def blocks():
        for block in corpus.read_blocks(inputs):
            done.add(len(block))
            yield (block,)

    encoded = run(_Worker.encode, blocks())
    counts = corpus.write_store(worker.folder, encoded)
    done.finish()
    return counts


def _write_shard(output, deal, worker, run, done):
    """Writes one record file; returns its counts.

    `deal` is its number and that of all outputs, `run` maps tasks in order,
    `done` is the `Progress`, in tokens: planning them takes about as long as
    writing them, and counts half.
    """
    settings, store = worker.settings, worker.store
    index, num_shards = deal
    seed = settings.seed
    plan_path = os.path.join(worker.folder, "plan.bin")
    documents = list(_deal_documents(index, num_shards, settings, store))
    size = _document_sizes(store)
    part_tokens = [int(size[some].sum()) for some, _ in documents]
    counts = collections.Counter(sequences=0, dropped_words=0)
    with open(plan_path, "wb") as file:
        for num_tokens, (rows, num_dropped) in zip(
            part_tokens, run(_Worker.plan, documents), strict=True
        ):
            file.write(rows.tobytes())  # `tofile` does not say why it fails.
            counts["dropped_words"] += num_dropped
            done.add(num_tokens / 2)
    plan = _open_plan(plan_path)
    order = np.arange(len(plan), dtype=np.uint32)
    np.random.default_rng([seed, 1, index]).shuffle(order)

    def batches():
        size = max(1, BATCH_TOKENS // settings.sequence.max_seq_length)
        for i in range(0, len(plan), size):
            yield plan[order[i : i + size]], (seed, 2, index, i)

    def serialized():
        for examples, batch_counts in run(_Worker.build, batches()):
            counts.update(batch_counts)
            done.add(sum(part_tokens) / 2 * len(examples) / len(plan))
            yield from examples

    records.write_records(output, serialized())
    return dict(counts)


def _open_plan(path):
    if not os.path.getsize(path):
        return np.zeros(0, sequences.PLAN)
    return np.memmap(path, sequences.PLAN, "r").view(np.ndarray)


def _document_sizes(store):
    return np.diff(store.sentences[store.documents])


def _deal_documents(index, num_shards, settings, store):
    """Yields the documents of a shard, some at a time, each with a seed.

    Each use of a document goes to another shard, and each shard gets documents
    from everywhere.
    """
    seed = settings.seed
    size = _document_sizes(store)
    order = np.random.default_rng([seed, 0]).permutation(len(size))
    for dupe in range(settings.dupe_factor):
        documents = order[(index - dupe) % num_shards :: num_shards]
        if not len(documents):
            continue
        ends = np.cumsum(size[documents])
        cuts = np.searchsorted(
            ends, np.arange(PART_TOKENS, ends[-1], PART_TOKENS)
        )
        for part, some in enumerate(np.split(documents, np.unique(cuts))):
            yield some, f"{seed} {index} {dupe} {part}"


def _statistics(counts, results):
    """What the sidecar says of the whole run."""
    total: collections.Counter = collections.Counter()
    for result in results:
        total.update(result)

    def share(name, whole):
        return round(total[name] / max(total[whole], 1), 6)

    return {
        **counts,
        **{name: total[name] for name in ("sequences", "tokens")},
        "masked_share": share("masked", "tokens"),
        "swapped_share": share("swapped", "sequences"),
        "short_share": share("short", "sequences"),
        "dropped_words": total["dropped_words"],
    }


# Checks.


def _check_inputs(inputs):
    empty = [path for path in inputs if not filesystem.size(path)]
    if len(empty) == len(inputs):
        raise ValueError(f"There is no text in {inputs[:3]}: the size is 0.")
    for path in empty:
        logging.warning("%s is empty.", path)
    for path in inputs:
        corpus.check_text(path)


def _check_counts(counts, inputs, settings):
    """Says what is odd about the text, or refuses it."""
    num_documents = counts["input_documents"]
    if not num_documents:
        raise ValueError(
            f"There is no text in {inputs[:3]}: all lines are blank."
        )
    if settings.sequence.sentence_objective == "nsp" and num_documents == 1:
        raise ValueError(
            "NSP takes every second segment from another document, but there "
            "is only one. Documents are separated by blank lines: is there any?"
        )
    if counts["bad_characters"]:
        logging.warning(
            "%d characters are not UTF-8 text. Is it in another encoding, or "
            "damaged?",
            counts["bad_characters"],
        )
    if num_documents - counts["cut_documents"] <= len(inputs):
        logging.warning(
            "No blank line was found between documents: each file is taken "
            "as one document, from which all its sequences get the same "
            "random length, if they are made short at all."
        )
    if counts["cut_documents"]:
        logging.warning(
            "Documents of more than %d tokens were cut, %d times.",
            corpus.MAX_DOCUMENT_TOKENS,
            counts["cut_documents"],
        )

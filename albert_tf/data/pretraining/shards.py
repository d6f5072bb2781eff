"""Creates pretraining records from text files, with worker processes.

The output does not depend on the number of workers: the data alone determine
how the work is divided into tasks, every task has its own seed, and results
are written in task order. A hidden folder next to the output contains the
token store, the plan of the current shard, and the list of finished shards,
so an interrupted run resumes with the next shard.
"""

import collections
import dataclasses
import functools
import logging
import os
import re

import numpy as np

from albert_tf import filesystem, ownership, progress, settings
from albert_tf.data import processes
from albert_tf.data.pretraining import (
    compressed,
    corpus,
    draws,
    markup,
    records,
    rules,
    sequences,
    sidecars,
    spaced_words,
    unfinished,
)
from albert_tf.settings import setting
from albert_tf.text import coverage, tokenization

# These sizes affect the output, because each task has its own seed.
PART_TOKENS = 1 << 20
BATCH_TOKENS = 1 << 17
# Increased whenever the same settings produce different records.
VERSION = 1
# Fewer tokens in a line or sentences in a document are worth a warning.
MIN_TOKENS, MIN_SENTENCES = 3, 1.5
FEW_DOCUMENTS = 10  # Too few to judge.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings that, with the text, determine the records.

    Attributes:
      tokenizer: (name, value) pairs, arguments of
        `tokenization.build_tokenizer`.
      sequence: settings of sequences.
      masking: settings of masking; of dynamic records, the defaults.
      is_dynamic: whether the records are masked when they are read.
      dupe_factor: number of times each document is used.
      seed: random seed.
      text: how the files contain the text.
      words_from_spaces: whether spaces divide words of scripts without them.
    """

    tokenizer: tuple
    sequence: rules.SequenceRule
    masking: rules.MaskingRule
    is_dynamic: bool = False
    dupe_factor: int = setting(
        rules.DUPE_FACTOR, at_least=1, at_most=rules.MAX_DUPE_FACTOR
    )
    seed: int = setting(settings.SEED, at_least=0)
    text: markup.TextFormat = markup.TextFormat()
    words_from_spaces: bool = False

    def __post_init__(self):
        settings.check(self)
        length = self.sequence.max_seq_length
        if self.masking.max_predictions > length:
            raise ValueError(
                f"max_predictions_per_seq={self.masking.max_predictions}; "
                f"wanted at most max_seq_length={length}."
            )
        if self.words_from_spaces and not self.masking.do_whole_word_mask:
            raise ValueError(
                "words_from_spaces=True needs do_whole_word_mask=True; with "
                "False, tokens are masked one by one. Omit one of them."
            )

    def build_tokenizer(self):
        """Builds the tokenizer of the text."""
        tokenizer = tokenization.build_tokenizer(**dict(self.tokenizer))
        if self.words_from_spaces:
            return spaced_words.SpacedTokenizer(tokenizer)
        return tokenizer


@dataclasses.dataclass
class _Worker:
    """Runs tasks; each process has its own worker with its own open files.

    Pickled without what it has opened.
    """

    settings: Settings
    folder: filesystem.Path
    tokenizer: tokenization.Tokenizer

    def __reduce__(self):
        return _Worker, (self.settings, self.folder, self.tokenizer)

    @functools.cached_property
    def vocabulary(self):
        return sequences.Vocabulary.from_tokenizer(self.tokenizer)

    @functools.cached_property
    def store(self):
        return corpus.open_store(self.folder, self.tokenizer.vocab_size)

    def encode(self, block):
        return corpus.encode_block(
            block, self.tokenizer, self.settings.sequence.max_tokens
        )

    def plan(self, documents, seed):
        return sequences.plan_documents(
            self.store,
            documents,
            self.settings.sequence,
            self.vocabulary.is_word_start,
            seed,
        )

    def build(self, plan, seed):
        return build_examples(
            self.store, plan, self.settings, self.vocabulary, seed
        )


def build_examples(store, plan, settings: Settings, vocabulary, seed) -> tuple:
    """Builds, masks and serializes planned sequences.

    Returns:
      The N serialized examples, and a dict of counts, from which `summarize`
      computes the statistics.
    """
    rule = settings.masking
    features = sequences.build_features(
        store, plan, settings.sequence, vocabulary
    )
    num_tokens = features["segment_ends"][:, 1]  # [N]
    # Dynamic records are masked here only to count the masks.
    source = draws.InOrder(np.random.default_rng(seed))
    masked = sequences.mask_features(features, rule, vocabulary, source)
    if not settings.is_dynamic:
        features = masked
    counts = {
        "sequences": len(plan),
        "tokens": int(num_tokens.sum()),
        "masked": int(masked["masked_lm_weights"].sum()),
        "swapped": int(plan["label"].sum()),
        "short": int(plan["is_short"].sum()),
    }
    return records.encode_examples(features), counts


def output_names(output_file: str, num_shards: int) -> list[str]:
    """Returns the names of the record files to write.

    Args:
      output_file: comma-separated names; a single name if num_shards > 1.
      num_shards: if above 1, files are named NAME-00000-of-NNNNN.tfrecord.
    """
    names = filesystem.split_paths(output_file)
    resolved = {os.path.realpath(name) for name in names}
    if not names or len(resolved) < len(names):
        raise ValueError(
            f"output_file must name different files; got {output_file!r}."
        )
    for name in names:
        if name.endswith("/") or filesystem.is_folder(name):
            raise ValueError(f"output_file: {name} is a folder; wanted a file.")
    if num_shards == 1:
        return names
    if not 1 < num_shards <= rules.MAX_NUM_SHARDS or len(names) > 1:
        raise ValueError(
            "Set either one output_file and num_shards, or a list of files; "
            f"got {len(names)} files and num_shards {num_shards}."
        )
    stem = re.sub(r"\.(tfrecord|tf_record)$", "", names[0])
    ending = names[0].removeprefix(stem) or ".tfrecord"
    return [
        f"{stem}-{i:05}-of-{num_shards:05}{ending}" for i in range(num_shards)
    ]


def written_files(outputs: list[str]) -> list[str]:
    """Returns all files written when creating the given record files."""
    return [*outputs, *map(sidecars.sidecar_path, outputs)]


def create_shards(
    inputs: list[str],
    outputs: list[str],
    settings: Settings,
    *,
    num_workers: int = 1,
    flags: dict | None = None,
    has_progress: bool = True,
) -> dict:
    """Writes record files; each contains documents from the whole input.

    The sidecars (see `sidecars.read_sidecar`) are written last.

    Args:
      inputs: names of text files: UTF-8, one sentence per line, a blank line
        between documents.
      outputs: names of the record files.
      settings: the `Settings`.
      num_workers: number of worker processes; 1 uses the current process.
      flags: the program's flags, recorded in the sidecar.
      has_progress: whether to show a progress line on stderr.

    Returns:
      The statistics of the sidecar.

    Raises:
      ValueError: if there is no text, only one document for NSP, or an output
        is an input.
      BlockingIOError: if another process is writing the same files.
    """
    if isinstance(inputs, str) or isinstance(outputs, str):
        raise ValueError(
            f"Found {inputs!r:.80} and {outputs!r:.80}; wanted lists of names."
        )
    inputs, outputs = [*map(str, inputs)], [*map(str, outputs)]
    _check_inputs(inputs, settings)
    filesystem.check_outputs(
        {"outputs": written_files(outputs)}, {"inputs": inputs}
    )
    tokenizer = settings.build_tokenizer()
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
        worker = _Worker(settings, state.folder, tokenizer)
        _write_outputs(
            inputs, outputs, worker, state, num_workers, has_progress
        )
        statistics = summarize(state.counts, state.shards.values())
        state.publish(outputs)
        write_sidecars(
            outputs, state.shards, settings, tokenizer, flags, statistics
        )
        state.remove()
    return statistics


def _write_outputs(inputs, outputs, worker, state, num_workers, has_progress):
    """Writes all record files that are not finished yet."""
    settings = worker.settings
    vocab_size = worker.tokenizer.vocab_size
    with processes.ordered_map(num_workers, worker) as run:
        counts = state.counts
        if not counts or not corpus.is_store(state.folder, vocab_size, counts):
            counts = _tokenize(inputs, worker, run, has_progress)
        check_counts(counts, inputs, settings, worker.tokenizer, len(inputs))
        state.keep_counts(counts)
        num_tokens = counts["input_tokens"] * settings.dupe_factor
        tokens = progress.Progress(
            "writing", num_tokens, "tokens", has_progress
        )
        for index, output in enumerate(outputs):
            if not state.is_finished(output):
                place = index, len(outputs)
                path = unfinished.staged(output)
                result = _write_shard(path, place, worker, run, tokens)
                state.keep_shard(output, result)
        tokens.finish()


def write_sidecars(outputs, shards, settings, tokenizer, flags, statistics):
    """Writes the sidecars of complete record files; warns of empty files.

    `shards` is a dict from name to the number of `sequences` and `num_bytes`.
    """
    _warn_of_empty_files(outputs, shards, statistics["input_documents"])
    description = {
        "format": sidecars.FORMAT,
        "max_seq_length": settings.sequence.max_seq_length,
        "max_predictions_per_seq": settings.masking.max_predictions,
        "num_predictions": settings.masking.num_predictions,
        "sentence_objective": settings.sequence.sentence_objective,
        "tokenizer": tokenizer.settings,
        "masking": sidecars.STATIC,
        "flags": flags or {},
        "statistics": statistics,
        sidecars.VOCABULARY: sidecars.encode_vocabulary(tokenizer.content),
    }
    if settings.is_dynamic:  # What masking while reading requires.
        vocabulary = sequences.Vocabulary.from_tokenizer(tokenizer)
        description |= {
            "masking": sidecars.DYNAMIC,
            "masking_rule": dataclasses.asdict(settings.masking),
            "vocabulary": vocabulary.to_json(),
        }
    for sidecar in set(map(sidecars.sidecar_path, outputs)):
        files = [f for f in outputs if sidecars.sidecar_path(f) == sidecar]
        own = {
            "files": [os.path.basename(path) for path in files],
            "num_records": [shards[path]["sequences"] for path in files],
            "num_bytes": [shards[path]["num_bytes"] for path in files],
        }
        sidecars.write_sidecar(sidecar, description | own)


def _warn_of_empty_files(outputs, shards, num_documents):
    empty = [path for path in outputs if not shards[path]["sequences"]]
    if empty:
        logging.warning(
            "%d of %d files have no sequence, such as %s: %d documents are too "
            "few for so many files.",
            len(empty),
            len(outputs),
            empty[0],
            num_documents,
        )


def _tokenize(inputs, worker, run, has_progress):
    """Writes the token store; returns its counts."""
    # Of compressed text, the size is unknown.
    is_known = not any(map(compressed.is_compressed, inputs))
    num_bytes = sum(map(filesystem.size, inputs)) if is_known else None
    done = progress.Progress("tokenizing", num_bytes, "bytes", has_progress)

    def blocks():
        for block in corpus.read_blocks(inputs, worker.settings.text.open):
            done.add(len(block))
            yield (block,)

    encoded = run(_Worker.encode, blocks())
    counts = corpus.write_store(worker.folder, encoded)
    done.finish()
    return counts


def _write_shard(output, position, worker, run, done):
    """Writes one record file; returns its counts.

    `position` is (index of the shard, number of shards), `run` maps tasks in
    order, `done` is the `Progress`, in tokens. Planning takes about as long as
    writing, so it counts half.
    """
    settings, store = worker.settings, worker.store
    index, num_shards = position
    seed = settings.seed
    plan_path = os.path.join(worker.folder, "plan.bin")
    parts = list(_assign_documents(index, num_shards, settings, store))
    size = _document_sizes(store)
    part_tokens = [int(size[documents].sum()) for documents, _ in parts]
    counts = collections.Counter(sequences=0, dropped_words=0)
    with open(plan_path, "wb") as file:
        for num_tokens, (rows, num_dropped) in zip(
            part_tokens, run(_Worker.plan, parts), strict=True
        ):
            file.write(rows.tobytes())  # `tofile` hides why it fails.
            counts["dropped_words"] += num_dropped
            done.add(num_tokens / 2)
    plan = np.zeros(0, sequences.PLAN)
    if os.path.getsize(plan_path):
        plan = np.memmap(plan_path, sequences.PLAN, "r").view(np.ndarray)
    # The usual integers of it are part of VERSION.
    is_huge = len(plan) > np.iinfo(np.uint32).max
    order = np.arange(len(plan), dtype=np.int64 if is_huge else np.uint32)
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


def _document_sizes(store):
    return np.diff(store.sentences[store.documents])


def _assign_documents(index, num_shards, settings, store):
    """Yields the documents of a shard in parts, each with its seed.

    The duplicates of a document go to different shards, and each shard gets
    documents from the whole input.
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
        for i, part in enumerate(np.split(documents, np.unique(cuts))):
            yield part, f"{seed} {index} {dupe} {i}"


def summarize(counts: dict, results) -> dict:
    """Returns the statistics of the whole run, for the sidecar.

    Args:
      counts: the counts of `corpus.write_store`.
      results: dicts of counts of `build_examples`, with `dropped_words`.

    Raises:
      ValueError: if there is no sequence.
    """
    total: collections.Counter = collections.Counter()
    for result in results:
        total.update(result)

    if not total["sequences"]:
        raise ValueError(
            f"The text has no sequence: each of its {counts['input_documents']}"
            " documents has only one word. Are blank lines between documents "
            "alone, not between sentences?"
        )

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


def _check_inputs(inputs, settings):
    empty = [path for path in inputs if not filesystem.size(path)]
    if len(empty) == len(inputs):
        raise ValueError(
            f"There is no text in {inputs[:3]}: the files are empty."
        )
    for path in empty:
        logging.warning("%s is empty.", path)
    markup.say_formats(settings.text.detect(path) for path in inputs)
    if settings.words_from_spaces:
        lines = coverage.read_sample(inputs, settings.text.open)
        spaced_words.check_sample(lines)


def check_counts(
    counts: dict,
    inputs: list[str],
    settings: Settings,
    tokenizer: tokenization.Tokenizer,
    num_parts: int,
):
    """Warns about unusual text, and refuses text that cannot be used.

    `counts` are those of `corpus.write_store`. Documents also end at the ends
    of the `num_parts` parts of the text.
    """
    num_documents = counts["input_documents"]
    if not num_documents:
        raise ValueError(
            f"There is no text in {inputs[:3]}: all lines are blank."
        )
    if settings.sequence.sentence_objective == "nsp" and num_documents == 1:
        raise ValueError(
            "NSP takes half of the second segments from another document, but "
            "there is only one document. Are documents separated by blank "
            "lines?"
        )
    corpus.warn_of_bad_characters(counts["bad_characters"])
    if num_documents - counts["cut_documents"] <= num_parts:
        logging.warning(
            "No blank line was found between documents: each file is treated "
            "as one document. If it is chosen for short sequences, all of its "
            "sequences get the same random length."
        )
    if counts["cut_documents"]:
        logging.warning(
            "Documents of more than %d tokens were split, %d times.",
            corpus.MAX_DOCUMENT_TOKENS,
            counts["cut_documents"],
        )
    for warning in _describe_text(counts, settings, tokenizer):
        logging.warning("%s", warning)


def _describe_text(counts, settings, tokenizer):
    """Yields sentences about text that is not as training needs it."""
    num_tokens, num_sentences = (
        counts["input_tokens"],
        counts["input_sentences"],
    )
    num_documents = counts["input_documents"]
    # Absent in an unfinished run of an older version.
    unknown = counts.get("unknown_tokens", 0) / max(num_tokens, 1)
    if unknown > coverage.MANY_UNKNOWN:
        yield (
            f"{unknown:.0%} of all pieces are unknown to the vocabulary. "
            f"{coverage.ask_for_marks(tokenizer)}Is a part of "
            "the text of another language?"
        )
    if num_tokens < MIN_TOKENS * num_sentences:
        yield (
            f"A line has {num_tokens / num_sentences:.1f} tokens on average; "
            "wanted a sentence on each. Is it a list of words?"
        )
    has_order = settings.sequence.sentence_objective == "sop"
    mean = num_sentences / num_documents
    if has_order and num_documents > FEW_DOCUMENTS and mean < MIN_SENTENCES:
        yield (
            f"A document has {mean:.1f} sentences on average: of one sentence, "
            "only the order of its halves can be learned. Is there a blank "
            "line after each sentence?"
        )

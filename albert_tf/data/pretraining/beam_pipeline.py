"""Creates pretraining records as an Apache Beam pipeline, on many machines.

The records have the same distribution as those of `shards`, but not the same
order and masks. The pipeline is

    list tasks | tokenize | build records | group and sort buckets | join shards

with a reshuffle between the first three. What is grouped in one place is a
bucket, never a shard or the corpus; see `blocks`. Text is read with Beam's
file systems. Records are written with TensorFlow's, as pretraining reads them.

The tokenizer is sent to the workers as a part of the pipeline.
"""

import dataclasses
import functools
import logging
import os
import shlex
import uuid

import apache_beam as beam
import google_crc32c  # noqa: F401 (`blocks` imports it, in the workers)
from apache_beam.io import filesystem as beam_filesystem
from apache_beam.io import filesystems
from apache_beam.options import pipeline_options
from apache_beam.portability.api import beam_provision_api_pb2
from apache_beam.runners.portability import portable_runner
from apache_beam.runners.portability.fn_api_runner import fn_runner

from albert_tf import filesystem, ownership
from albert_tf.data.pretraining import (
    blocks,
    compressed,
    corpus,
    markup,
    sequences,
    shards,
    sidecars,
    spaced_words,
    unfinished,
)

_DIRECT_RUNNERS = {"directrunner", "direct"}
# Number of files whose start is checked before the pipeline; the workers check
# the others.
_MAX_PROBED = 100
_SUMMARY = "summary.json"
_SUMMARIES = "summaries"


def find_files(patterns: str, options: str = "") -> list[blocks.TextFile]:
    """Returns the sorted files that match comma-separated names or globs.

    They may be on any file system that Beam knows.

    Raises:
      ValueError: if a pattern matches nothing, if its file system is unknown,
        or if a match is a folder.
    """
    words = pipeline_options.PipelineOptions(_split_options(options))
    _call_beam(filesystems.FileSystems.set_options, words)
    files = set()
    # TensorFlow may not know a file system that Beam knows.
    is_remote = "://" in patterns
    split = filesystem.split_list if is_remote else filesystem.split_paths
    named = split(patterns)
    if local := [name for name in named if not filesystem.is_remote(name)]:
        files |= {
            (path, filesystem.size(path))
            for path in filesystem.expand_files(",".join(local))
        }
    for pattern in filter(filesystem.is_remote, named):
        matches = _call_beam(filesystems.FileSystems.match, [pattern])[0]
        if not matches.metadata_list:
            raise ValueError(f"No file matches {pattern!r}.")
        files |= {(m.path, m.size_in_bytes) for m in matches.metadata_list}
    if not files:
        raise ValueError(f"Found no file name in {patterns!r}; wanted one.")
    return [
        blocks.TextFile(path, size, compressed.is_compressed(path))
        for path, size in sorted(files)
    ]


def create_shards(
    files: list[blocks.TextFile],
    outputs: list[str],
    settings: shards.Settings,
    *,
    runner: str,
    options: str = "",
    num_workers: int = 1,
    flags: dict | None = None,
) -> dict:
    """Writes record files with a pipeline, and then their sidecars.

    An interrupted run starts again from the beginning. Until a run is
    complete, a folder next to the output marks it as unfinished.

    Arguments and result are those of `shards.create_shards`, but `files` are
    from `find_files`, `runner` is the name of a runner that Beam knows,
    `options` are Beam's, as on a command line, and `num_workers` is the number
    of processes of the DirectRunner.

    Raises:
      ValueError: if there is no text, if Beam refuses the options, or if the
        pipeline fails.
      BlockingIOError: if another process is writing the same files.
    """
    names = [file.path for file in files]
    _check_paths(runner, names + outputs)
    pipeline = _make_pipeline(runner, options, num_workers)
    files = [_without_markup(file, settings.text) for file in files]
    starts = _check_text(files, settings.text)
    if settings.words_from_spaces:
        text = b"\n".join(starts).decode(errors="ignore")
        spaced_words.check_sample(text.splitlines())
    tokenizer = settings.build_tokenizer()
    run_id = uuid.uuid4().hex
    with (
        ownership.owning(*unfinished.lock_names(outputs)),
        # No other run has this fingerprint, so nothing is resumed.
        unfinished.Unfinished(outputs, run_id) as state,
    ):
        job = _Job(settings, outputs, run_id)
        num_buckets = blocks.buckets_per_shard(
            files, len(outputs), settings, blocks.documents_per_byte(starts)
        )
        tasks = blocks.list_tasks(files)
        _build(pipeline, tasks, job, tokenizer, num_buckets)
        _run(pipeline, runner)
        summary = filesystem.read_json(os.path.join(job.folder, _SUMMARY))
        counts = summary["text"]
        num_parts = sum(map(len, tasks))
        shards.check_counts(counts, names, settings, tokenizer, num_parts)
        statistics = shards.summarize(counts, [summary["records"]])
        written = {
            output: summary["shards"][str(i)]
            for i, output in enumerate(outputs)
        }
        # From here on, an error leaves the mark of an unfinished set.
        state.keep_counts({})
        state.publish(outputs)
        shards.write_sidecars(
            outputs, written, settings, tokenizer, flags, statistics
        )
        state.remove()
    return statistics


def _check_paths(runner, paths):
    local = [path for path in paths if not filesystem.is_remote(path)]
    if local and "dataflow" in runner.lower():
        raise ValueError(
            f"runner={runner} works on machines that cannot reach "
            f"{local[0]}; wanted a path such as gs://bucket/name."
        )


def _split_options(options):
    words = shlex.split(options)
    if words and not words[0].startswith("--"):
        raise ValueError(
            f"beam_options={options!r} does not start with an option; wanted "
            "for example beam_options='--project=x --region=y'."
        )
    if any(word.split("=")[0] == "--runner" for word in words):
        raise ValueError("Set the runner itself, not in beam_options.")
    return words


def _make_pipeline(runner, options, num_workers):
    words = _split_options(options)
    is_direct = runner.lower() in _DIRECT_RUNNERS
    if num_workers > 1 and not is_direct:
        raise ValueError(
            f"num_workers={num_workers} is for runner=DirectRunner; the "
            f"workers of {runner} are set in beam_options, for example with "
            "--num_workers (Dataflow) or --parallelism (Flink)."
        )
    if num_workers > 1:
        words += [
            f"--direct_num_workers={num_workers}",
            "--direct_running_mode=multi_processing",
        ]
    if is_direct:
        # Each process reports all its steps, and warns of Beam's own options.
        words += ["--default_sdk_harness_log_level=ERROR"]
        logging.getLogger("apache_beam").setLevel(logging.ERROR)
    options = pipeline_options.PipelineOptions(words)
    if is_direct:
        runner = _call_beam(_local_runner, options)
    return _call_beam(beam.Pipeline, runner, options)


def _local_runner(options):
    """Returns the part of Beam's DirectRunner that is written in Python.

    The DirectRunner itself prefers Prism, a program that it downloads, and
    that ignores the number of processes.
    """
    values = portable_runner.JobServiceHandle.encode_pipeline_options(
        options.get_all_options()
    )
    info = beam_provision_api_pb2.ProvisionInfo(pipeline_options=values)
    return fn_runner.FnApiRunner(
        provision_info=fn_runner.ExtendedProvisionInfo(info)
    )


def _call_beam(function, *args):
    """Calls a function of Beam whose errors are for the user."""
    try:
        return function(*args)
    except (ImportError, OSError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"Apache Beam: {error}") from error
    except SystemExit:  # Beam's parser has printed why.
        raise ValueError("Apache Beam does not accept beam_options.") from None


def _without_markup(file, text):
    """Returns a file that is read from its start if its text is converted."""
    is_small = file.num_bytes < blocks.TASK_BYTES
    if is_small or file.is_compressed:
        return file
    is_plain = text.detect(file.path, _open_bytes) == "text"
    return file._replace(is_compressed=not is_plain)


def _check_text(files, text_format):
    """Refuses files that are not text, or that are all blank.

    Returns:
      The first bytes of at most _MAX_PROBED files.
    """
    if not any(file.num_bytes for file in files):
        raise ValueError(
            f"There is no text in {[f.path for f in files[:3]]}: the files are "
            "empty."
        )
    starts = []
    some = files[:: -(-len(files) // _MAX_PROBED)]
    markup.say_formats(text_format.detect(f.path, _open_bytes) for f in some)
    opening = _opening(text_format)
    for file in some:
        with opening(file.path) as opened:
            starts.append(opened.read(corpus.PROBE_BYTES))
    text = blocks.read_task([blocks.Span(f.path) for f in files], opening)
    if not any(block.strip() for block in text):
        raise ValueError(
            f"There is no text in {[f.path for f in files[:3]]}: all lines are "
            "blank."
        )
    return starts


def _opening(text):
    """Returns a function that opens the plain text of a file, as a file."""
    return functools.partial(text.open, open_bytes=_open_bytes)


def _open_bytes(path):
    stored = beam_filesystem.CompressionTypes.UNCOMPRESSED
    return filesystems.FileSystems.open(path, compression_type=stored)


@dataclasses.dataclass(frozen=True)
class _Job:
    """What the steps need to know."""

    settings: shards.Settings
    outputs: list
    run_id: str  # A name that no other run has.

    @property
    def folder(self):
        """The folder of buckets and of the summary."""
        return self.folder_of(self.outputs[0])

    def folder_of(self, output):
        """Returns a folder of this run, on the file system of an output."""
        return os.path.join(sidecars.unfinished_folder(output), self.run_id)


def _build(pipeline, tasks, job, tokenizer, num_buckets):
    """Adds all steps to a pipeline; num_buckets is of each shard."""
    vocabulary = sequences.Vocabulary.from_tokenizer(tokenizer)
    tokenized = (
        pipeline
        | "ListTasks" >> beam.Create(list(enumerate(tasks)))
        | "Tokenize"
        >> beam.FlatMap(_tokenize, job.settings, tokenizer).with_outputs(
            _SUMMARIES, main="blocks"
        )
    )
    built = (
        tokenized.blocks
        | "SpreadBlocks" >> beam.Reshuffle()
        | "BuildRecords"
        >> beam.FlatMap(
            _build_records,
            job.settings,
            vocabulary,
            num_buckets * len(job.outputs),
        )
        .with_output_types(tuple[int, bytes])
        .with_outputs(_SUMMARIES, main="records")
    )
    buckets = (
        built.records
        | "GroupBuckets" >> beam.GroupByKey()
        | "WriteBuckets"
        >> beam.Map(_write_bucket, job, num_buckets).with_output_types(
            tuple[int, tuple]
        )
    )
    every_shard = pipeline | "ListShards" >> beam.Create(
        [(shard, ()) for shard in range(len(job.outputs))]
    ).with_output_types(tuple[int, tuple])
    written = (
        (buckets, every_shard)
        | "AddEmptyShards" >> beam.Flatten()
        | "GroupShards" >> beam.GroupByKey()
        | "JoinShards" >> beam.Map(_join_shard, job)
    )
    (
        (tokenized[_SUMMARIES], built[_SUMMARIES], written)
        | "AllSummaries" >> beam.Flatten()
        | "Merge" >> beam.CombineGlobally(blocks.merge_summaries)
        | "WriteSummary" >> beam.Map(_write_summary, job)
    )


def _tokenize(element, settings, tokenizer):
    """Converts a task to ((task, block), `corpus.Store`) of each block."""
    task, spans = element
    counts, stores = blocks.encode_task(
        blocks.read_task(spans, _opening(settings.text)),
        tokenizer,
        settings.sequence.max_tokens,
    )
    yield beam.pvalue.TaggedOutput(_SUMMARIES, {"text": counts})
    for block, store in enumerate(stores):
        yield (task, block), store


def _build_records(element, settings, vocabulary, num_buckets):
    """Converts a block to (bucket, record after its key)."""
    place, store = element
    for keyed, counts in blocks.build_records(
        store, place, settings, vocabulary
    ):
        yield beam.pvalue.TaggedOutput(_SUMMARIES, {"records": counts})
        for record in keyed:
            yield blocks.bucket_of(record, num_buckets), record


def _write_bucket(element, job, num_buckets):
    """Returns the shard of a bucket, and (bucket, file, number of records)."""
    bucket, keyed = element
    path, num_records = blocks.write_bucket(keyed, job.folder)
    return bucket // num_buckets, (bucket, path, num_records)


def _join_shard(element, job):
    """Writes a shard; returns its summary."""
    shard, buckets = element
    buckets = sorted(filter(None, buckets))
    output = job.outputs[shard]
    num_bytes = blocks.join_buckets(
        [path for _, path, _ in buckets],
        job.folder_of(output),
        unfinished.staged(output),
    )
    num_records = sum(number for _, _, number in buckets)
    counts = {"sequences": num_records, "num_bytes": num_bytes}
    return {"shards": {str(shard): counts}}


def _write_summary(summary, job):
    filesystem.write_json(os.path.join(job.folder, _SUMMARY), summary)


def _run(pipeline, runner):
    """Runs a pipeline and waits for its end."""
    try:
        state = pipeline.run().wait_until_finish()
    except Exception as error:  # Runners raise errors of any type.
        raise ValueError(
            f"The pipeline failed on {runner}: {_cause(error)} The same "
            "command starts again from the beginning."
        ) from error
    if state != beam.runners.runner.PipelineState.DONE:
        raise ValueError(f"The pipeline ended on {runner} as {state}.")


def _cause(error):
    """Returns the line that names the cause; workers send a traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if " [while running " in line]
    return [type(error).__name__, *lines, *causes][-1]

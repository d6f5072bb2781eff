"""Answers questions about a paragraph with an exported SavedModel."""

import numpy as np
import tensorflow as tf

from albert_tf import errors, filesystem
from albert_tf.data import answers, examples, squad, windows
from albert_tf.export import requests, saved_models
from albert_tf.weights import pretrained

BATCH_SIZE = 32
# One output of each kind of model (v1, v2), by which to recognize it.
SPAN_OUTPUTS = {"start_logits", "start_top_log_probs"}


def run(args):
    """Prints each question and its answers, the best first."""
    if bool(args.paragraph) == bool(args.paragraph_file):
        raise ValueError("Give either --paragraph or --paragraph_file.")
    paragraph = args.paragraph
    if args.paragraph_file:
        paragraph = filesystem.decode(
            filesystem.read_file(args.paragraph_file),
            args.paragraph_file,
            "{path} is not UTF-8: {error.reason} at byte {error.start}. Save "
            "it as UTF-8.",
        )
    if not paragraph.strip():
        raise ValueError("The paragraph is empty.")
    texts = [line for line in args.question.splitlines() if line.strip()]
    if not texts:
        raise ValueError("--question contains no question.")
    results, threshold = ask(
        args.saved_model,
        texts,
        paragraph,
        args,
        n_best_size=args.n_best_size,
        max_answer_length=args.max_answer_length,
    )
    for number, text in enumerate(texts):
        print(text)
        if (score := results.null_odds.get(str(number))) is not None:
            prefix, limit = "", "; no threshold was exported"
            if threshold is not None:
                prefix = "" if score < threshold else "no answer: "
                limit = f", threshold {threshold:.2f}"
            print(f"    {prefix}no-answer score {score:.2f}{limit}")
        for entry in results.nbest[str(number)]:
            print(f"    {entry['probability']:4.0%} {entry['text']}")


def ask(
    saved_model, texts, paragraph, lengths, *, n_best_size, max_answer_length
):
    """Answers questions about a paragraph with a SavedModel.

    `lengths` are `groups.WindowFlags`; `max_answer_length` counts tokens.

    Returns:
      `answers.Answers` whose ids are the indices of the questions, as strings;
      and the SavedModel's threshold, or None.
    """
    path = saved_models.newest_version(saved_model)
    serve = find_signature(saved_models.load_saved_model(path), path)
    described = read_assets(path)
    lengths = lengths.fit(described.config)
    settings = windows.WindowSettings(
        lengths.max_seq_length, lengths.doc_stride, lengths.max_query_length
    )
    windows.check_settings(settings)
    questions = squad.Squad(
        [paragraph],
        [squad.Question(str(i), t, 0, None) for i, t in enumerate(texts)],
    )
    encoded = windows.encode_squad(
        questions, described.tokenizer, settings, is_training=False
    )
    try:
        outputs = answer_windows(serve, encoded)
    except tf.errors.InvalidArgumentError as error:
        raise ValueError(
            f"{path} does not accept sequences of {encoded.lengths.max()} "
            f"tokens: {errors.first_line(error)}. Lower --max_seq_length."
        ) from error
    results = answers.find_answers(
        questions,
        encoded,
        outputs,
        n_best_size=n_best_size,
        max_answer_length=max_answer_length,
    )
    threshold = outputs.get("threshold")
    return results, None if threshold is None else float(threshold[0])


def read_assets(path):
    """Returns a `pretrained.Pretrained` without weights, from the assets."""
    described = pretrained.read_description(f"{path}/assets")
    parts = {"vocabulary": described.tokenizer, "config": described.config}
    for name, part in parts.items():
        if part is None:
            raise ValueError(
                f"{path}/assets has no {name}. Was it written by run_squad.py?"
            )
    return described


def find_signature(loaded, path):
    """Returns the signature that maps ids to spans."""
    serve = loaded.signatures.get("serving_default")
    if serve is not None:
        inputs = serve.structured_input_signature[1].keys()
        outputs = serve.structured_outputs.keys()
        if inputs == set(requests.FEATURES) and outputs & SPAN_OUTPUTS:
            return serve
        actual = f"one from {sorted(inputs)} to {sorted(outputs)}"
    else:
        actual = f"the signatures {sorted(loaded.signatures)}"
    raise ValueError(
        f"{path} does not answer questions from ids: wanted a signature "
        f"serving_default from {sorted(requests.FEATURES)} to spans; found "
        f"{actual}. Give a SavedModel from the --export_dir of run_squad.py."
    )


def answer_windows(serve, encoded):
    """Returns a SavedModel's outputs for N windows, dict of [N, ...] arrays."""
    length, all_rows = encoded.lengths.max(), range(len(encoded))
    parts = []
    for start in all_rows[::BATCH_SIZE]:
        rows = all_rows[start : start + BATCH_SIZE]
        features = examples.pad_examples(encoded, rows, length)
        parts.append(
            serve(**{n: tf.constant(features[n]) for n in requests.FEATURES})
        )
    return {
        name: np.concatenate([part[name] for part in parts])
        for name in parts[0]
    }

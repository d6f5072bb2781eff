"""Fine-tunes and scores ALBERT on SQuAD 1.1, 2.0 and what is written like it.

python run_squad.py --flagfile=configs/squad/v2.flags \
    --train_file=train-v2.0.json --predict_file=dev-v2.0.json \
    --init_checkpoint=albert_base.tar.gz --output_dir=out \
    --do_train --do_predict
"""

import dataclasses
import functools
import os
from typing import Literal

from albert_tf import filesystem, flags, ownership
from albert_tf.data import answers, batches, examples, squad, windows
from albert_tf.export import serving
from albert_tf.flags import flag
from albert_tf.metrics import classification
from albert_tf.metrics import squad as metrics
from albert_tf.model import span_heads
from albert_tf.programs import finetuning, shared_flags, tasks
from albert_tf.training import evaluation, manifest
from albert_tf.weights.checkpoints import STEP

PREDICTIONS_FILE = "predictions.json"
NBEST_FILE = "nbest_predictions.json"
NULL_ODDS_FILE = "null_odds.json"
THRESHOLD = "null_score_diff_threshold"


@dataclasses.dataclass(frozen=True, kw_only=True)
class SquadFlags(shared_flags.FineTuningFlags):
    """The release's flags of both versions; what is ours stands last."""

    output_dir: str = flag(required=True)
    train_file: str | None = flag(help="JSON file to train on.")
    predict_file: str | None = flag(
        help="JSON file with questions to answer; scored if it has answers."
    )
    train_feature_file: str | None = flag(
        help="Ignored: encoded data is kept under --cached_dir, by content."
    )
    predict_feature_file: str | None = flag(help="Ignored, likewise.")
    predict_feature_left_file: str | None = flag(help="Ignored, likewise.")
    max_seq_length: int = flag(
        384,
        "Tokens of the longest sequence: question and window.",
    )
    doc_stride: int = flag(
        128,
        "Tokens between the beginnings of a paragraph's windows.",
        at_least=1,
    )
    max_query_length: int = flag(
        64, "Tokens of a question; the rest of it is cut.", at_least=1
    )
    do_predict: bool = flag(
        False,
        "Whether to answer --predict_file: by the best checkpoint, and where "
        "it has answers, to score every checkpoint.",
    )
    num_train_epochs: float | None = flag(
        3.0, "Passes over the questions, unless --train_step is given."
    )
    warmup_proportion: float | None = flag(
        0.1, "Share of all steps that is warmup, unless --train_step is given."
    )
    train_step: int | None = flag(
        help="Training steps, with --warmup_step, instead of epochs."
    )
    n_best_size: int = flag(
        20, "Answers in nbest_predictions.json.", at_least=1, at_most=10_000
    )
    max_answer_length: int = flag(
        30, "Tokens of the longest answer.", at_least=1
    )
    use_einsum: bool = flag(True, "Ignored: it changed no result.")
    start_n_top: int = flag(
        5, "v2: starts of the beam.", at_least=1, at_most=512
    )
    end_n_top: int = flag(
        5, "v2: ends of the beam for each start.", at_least=1, at_most=512
    )
    dropout_prob: float | None = flag(
        help="The release's name of --classifier_dropout: v2, before the "
        "logit that there is no answer.",
        at_least=0,
        below=1,
    )
    export_dir: str | None = flag(
        help="Where a SavedModel of the best checkpoint goes."
    )
    export_text_dir: str | None = flag(
        help="Where a SavedModel that takes questions and paragraphs goes; it "
        "needs tensorflow-text here and where it is loaded."
    )
    squad_version: Literal["v1", "v2"] = flag(
        "v1", "v1: always an answer; v2: maybe none, another head."
    )
    null_score_diff_threshold: float | None = flag(
        help="v2: answers where the odds of none are below it. Default: the "
        "best on --predict_file; without answers there, the one that the "
        "model's folder has.",
        at_least=-1e9,
        at_most=1e9,
    )
    num_workers: int = flag(
        1, "Processes that encode the data.", at_least=1, at_most=256
    )


def check_flags(args):
    """Refuses what cannot work before anything is loaded."""
    does_export = args.export_dir or args.export_text_dir
    if not (args.do_train or args.do_predict or does_export):
        raise ValueError(
            "Give --do_train, --do_predict or --export_dir: nothing to do."
        )
    for flag_name, is_wanted in (
        ("train_file", args.do_train),
        ("predict_file", args.do_predict),
    ):
        if is_wanted and not getattr(args, flag_name):
            raise ValueError(f"Please give --{flag_name}.")
    windows.check_settings(window_settings(args))
    check_beam(args)
    finetuning.check_flags(args)


def check_beam(args):
    """Raises ValueError if the beam of v2 would not be the same everywhere."""
    lengths = batches.parse_bucket_lengths(
        args.bucket_lengths, args.max_seq_length
    )
    widest = max(args.start_n_top, args.end_n_top)
    is_asked = args.squad_version == "v2" and args.do_predict
    if is_asked and len(lengths) > 1 and widest > lengths[0]:
        raise ValueError(
            f"--start_n_top={args.start_n_top} and "
            f"--end_n_top={args.end_n_top} have to fit into the shortest of "
            f"--bucket_lengths, {lengths[0]} tokens: leave out what is shorter."
        )


def window_settings(args):
    """Returns the `windows.WindowSettings` of flags."""
    return windows.WindowSettings(
        args.max_seq_length, args.doc_stride, args.max_query_length
    )


def encode(args, path, questions, tokenizer, *, is_training):
    """Returns the Examples of a Squad, from the cache if there is one."""
    return examples.cached_examples(
        args.cached_dir,
        os.path.basename(path),
        examples.cache_key(
            questions.contexts,
            questions.questions,
            tokenizer.settings,
            window_settings(args),
            is_training,
        ),
        lambda: windows.encode_squad(
            questions,
            tokenizer,
            window_settings(args),
            is_training=is_training,
            num_workers=args.num_workers,
        ),
    )


def find_answers(args, questions, encoded, run):
    """Returns the `answers.Answers` of a run's model as it stands."""
    return answers.find_answers(
        questions,
        encoded,
        run.predict(encoded),
        n_best_size=args.n_best_size,
        max_answer_length=args.max_answer_length,
    )


def gold_answers(questions):
    """Returns dict of question id -> texts of its answers."""
    return {q.id: [a.text for a in q.answers] for q in questions.questions}


def score_answers(args, gold, found):
    """Scores answers as SQuAD's script of the version does.

    Returns:
      The predictions, a dict of question id -> text, and a dict of scores.
    """
    if args.squad_version == "v1":
        return found.best, metrics.score_v1(gold, found.best)
    best = metrics.score_best_thresholds(gold, found.best, found.null_odds)
    threshold = args.null_score_diff_threshold
    if threshold is None:
        threshold = best["best_f1_thresh"]
        nothing = metrics.score_v2(gold, dict.fromkeys(gold, ""))
        if best["best_f1"] <= nothing["f1"]:
            # SQuAD's script says 0 where it is best never to answer.
            threshold = min(found.null_odds.values())
    predictions = answers.apply_threshold(found, threshold)
    scores = metrics.score_v2(gold, predictions)
    return predictions, {**scores, **best, THRESHOLD: threshold}


def score(args, questions, encoded, run):
    """Returns what a run's model, as it stands, gets on the dev data."""
    found = find_answers(args, questions, encoded, run)
    predictions, scores = score_answers(args, gold_answers(questions), found)
    if len(predictions) > 1 and len(set(predictions.values())) == 1:
        run.reporter.say(
            "WARNING: The model answers every question with "
            f"{next(iter(predictions.values()))!r:.80}. {classification.ADVICE}"
        )
    return scores


def score_baseline(args, questions):
    """Returns what it gets to answer nothing at all."""
    gold = gold_answers(questions)
    nothing = dict.fromkeys(gold, "")
    if args.squad_version == "v1":
        return metrics.score_v1(gold, nothing)
    return metrics.score_v2(gold, nothing)


def write_predictions(args, questions, encoded, run):
    """Writes the release's files; returns scores where there are answers."""
    found = find_answers(args, questions, encoded, run)
    predictions, scores = found.best, {}
    if questions.has_answers:
        gold = gold_answers(questions)
        predictions, scores = score_answers(args, gold, found)
        if THRESHOLD in scores and args.null_score_diff_threshold is None:
            run.reporter.say(
                f"The threshold {scores[THRESHOLD]:.4f} is the best for these "
                "very questions: expect less on others."
            )
    elif args.squad_version == "v2":
        predictions = answers.apply_threshold(
            found, choose_threshold(args, run, os.path.dirname(run.source))
        )
    files = {PREDICTIONS_FILE: predictions, NBEST_FILE: found.nbest}
    if args.squad_version == "v2":
        files[NULL_ODDS_FILE] = found.null_odds
    for name, values in files.items():
        filesystem.write_json(os.path.join(run.folder, name), values)
    path = os.path.join(run.folder, PREDICTIONS_FILE)
    run.reporter.say(f"{len(predictions)} answers: {path}")
    return scores


def choose_threshold(args, run, folder):
    """Returns the threshold of v2 where no answers are at hand.

    That is the flag's, else the one with which the best evaluation in a folder
    was scored, else 0, where both are equally probable. Of several evaluations
    of one step, such as 0 for models from elsewhere, the last counts.
    """
    threshold = args.null_score_diff_threshold
    if threshold is None:
        rows = [r for r in evaluation.read_results(folder) if THRESHOLD in r]
        rows = {row[STEP]: row for row in rows}.values()
        best = max(rows, key=lambda row: row["f1"], default={THRESHOLD: 0.0})
        threshold = best[THRESHOLD]
    run.reporter.say(f"Answers where the odds of none are below {threshold}.")
    return threshold


def build_exports(args, is_scored, tokenizer, text_export):
    """Returns the functions that write what --export_* ask for.

    Where the model was scored, its threshold is the one of that.
    """

    def write(function, folder, run, **kwargs):
        threshold = None
        if args.squad_version == "v2":
            beside = run.folder if is_scored else os.path.dirname(run.source)
            threshold = choose_threshold(args, run, beside)
        return tasks.export_model(
            function, run, folder, threshold=threshold, **kwargs
        )

    exports = []
    if args.export_dir:
        exports.append(
            functools.partial(write, serving.export_spans, args.export_dir)
        )
    if args.export_text_dir:
        exports.append(
            functools.partial(
                write,
                text_export.export_text_spans,
                args.export_text_dir,
                tokenizer=tokenizer,
                max_query_length=args.max_query_length,
                max_answer_length=args.max_answer_length,
            )
        )
    return tuple(exports)


def build_model_function(args):
    """Returns the function from config and dtype to the version's model."""
    if args.squad_version == "v1":
        return span_heads.AlbertSpans
    return functools.partial(
        span_heads.AlbertConditionalSpans,
        start_n_top=args.start_n_top,
        end_n_top=args.end_n_top,
        dropout_prob=finetuning.classifier_dropout(args),
    )


def describe(args, train, asked, encoded):
    """Returns what a manifest says of the task and its data.

    Args:
      args: SquadFlags.
      train: encoded questions to train on, or None.
      asked: the Squad to answer, or None.
      encoded: the same as Examples, or None.
    """
    data = {}
    if train is not None:
        data["train"] = manifest.describe_examples(train)
    if asked:
        part = "dev" if asked.has_answers else "test"
        data[part] = manifest.describe_examples(encoded, asked.questions)
    return {
        "task": {"name": f"squad_{args.squad_version}"},
        "windows": window_settings(args)._asdict(),
        "answers": {
            "n_best_size": args.n_best_size,
            "max_answer_length": args.max_answer_length,
        },
        "data": data,
    }


def run(args):
    """Trains, evaluates, answers and exports as the flags say."""
    check_flags(args)
    inputs = {
        "--train_file": [args.train_file],
        "--predict_file": [args.predict_file],
    }
    names = (PREDICTIONS_FILE, NBEST_FILE, NULL_ODDS_FILE)
    outputs = [os.path.join(args.output_dir, name) for name in names]
    filesystem.check_outputs({"--output_dir": outputs}, inputs)
    with ownership.owning_folder(args.output_dir):
        run_task(args)


def run_task(args):
    """Does what `run` does, in a folder that nobody else writes to."""
    if args.train_step is not None:
        args = dataclasses.replace(
            args, num_train_epochs=None, warmup_proportion=None
        )
    text_export = None
    if args.export_text_dir:
        text_export = tasks.import_text_export("--export_text_dir")
    start = finetuning.read_start(args)
    tokenizer = start[0].tokenizer
    if text_export:
        text_export.text_graph.check_tokenizer(tokenizer)
    train = asked = encoded = predict = scored = None
    num_train, baseline = 0, {}
    if args.do_train:
        questions = squad.read_squad(args.train_file)
        squad.check_version(questions, args.squad_version, args.train_file)
        num_train = len(questions.questions)
    if args.do_predict:
        asked = squad.read_squad(args.predict_file)
    if args.do_train:
        train = encode(
            args, args.train_file, questions, tokenizer, is_training=True
        )
    if args.do_predict:
        encoded = encode(
            args, args.predict_file, asked, tokenizer, is_training=False
        )
        predict = functools.partial(write_predictions, args, asked, encoded)
        num_unknown = sum(q.answers is None for q in asked.questions)
        if 0 < num_unknown < len(asked.questions):
            print(
                f"{args.predict_file} does not say the answers of "
                f"{num_unknown} of {len(asked.questions)} questions: it is "
                "answered, not scored."
            )
        if asked.has_answers:
            scored = functools.partial(score, args, asked, encoded)
            baseline = score_baseline(args, asked)
    task = tasks.Task(
        name=f"squad_{args.squad_version}",
        build_model=build_model_function(args),
        train=train,
        num_train=num_train,
        score=scored,
        best_metric="f1",
        baseline=baseline,
        predict=predict,
        exports=build_exports(args, scored is not None, tokenizer, text_export),
        made_of=describe(args, train, asked, encoded),
    )
    tasks.run_task(args, task, start)


def main():
    """The command."""
    flags.launch(run, SquadFlags)

"""Times prediction on real text against transformers and KerasHub.

  pip install -e '.[peers]'
  python -m benchmarks.real_text --data_dir=data --spm_model_file=30k.model

A turn converts texts to labels, vectors or logits: it includes tokenization,
padding, tracing and computation, but not loading the model. The models have
random weights. The candidates take turns in one process, and medians are
reported.

- classify: SST-2 (glue/SST-2/dev.tsv in --data_dir) and film reviews
  (imdb/test.tsv), with `Classification.predict`, the pipeline
  "text-classification" and KerasHub's AlbertTextClassifier.
- embed: the same texts, with `programs.embed` and the pipeline
  "feature-extraction".
- answer: squad/dev-v1.1.json in windows of 384, with `FineTuning.predict`, and
  with transformers' model called on each batch.

`usual`: for transformers, batches of 32 in file order, each padded to its
longest text (for `answer` to 384, as in its SQuAD example); for KerasHub,
sequence_length 512. `best`: for transformers, sorted by length; for KerasHub,
the length of the longest text. `KerasHub, usual` runs on the first --num_usual
texts only. In bfloat16, transformers has bfloat16 weights.
"""

import dataclasses
import functools
import os
import statistics
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")

from albert_tf import Classification, FineTuning, Recipe, flags
from albert_tf.data import examples, squad, table_tasks, tables, windows
from albert_tf.flags import flag
from albert_tf.inference import embedder
from albert_tf.model import layers, modeling
from albert_tf.model.config import AlbertConfig
from albert_tf.tasks.squad import Answering
from albert_tf.text import tokenization
from albert_tf.weights import pretrained
from benchmarks import peers

BATCH_SIZE = 32
WINDOWS = windows.WindowSettings(384, 128, 64)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BenchmarkFlags:
    """Data, model and workloads."""

    data_dir: str = flag(
        required=True, help="Folder that contains glue, imdb and squad."
    )
    spm_model_file: str = flag(required=True, help="SentencePiece model.")
    albert_config_file: str = flag(
        "configs/model/v2/base.json", "JSON file with the architecture."
    )
    works: str = flag("classify,embed,answer", "Comma-separated workloads.")
    dtypes: str = flag("float32,bfloat16", "Comma-separated compute dtypes.")
    num_sentences: int = flag(872, "Number of sentences of SST-2's dev.tsv.")
    num_reviews: int = flag(64, "Number of film reviews.")
    num_questions: int = flag(64, "Number of SQuAD questions.")
    num_usual: int = flag(32, "Number of texts for `KerasHub, usual`.")
    num_turns: int = flag(5, "Number of turns; the median is reported.")
    peers: bool = flag(True, "Whether to run other libraries.")


def read_texts(args):
    """Returns a dict from each data set's name to its texts."""
    sst = table_tasks.GLUE["sst-2"].dev[""]
    sentences = tables.read_table(f"{args.data_dir}/glue/SST-2/dev.tsv", sst)
    # Tab-separated, without quotes: label, text.
    with open(f"{args.data_dir}/imdb/test.tsv", encoding="utf-8") as file:
        reviews = [line.rstrip("\n").split("\t")[1] for line in file][1:]
    return {
        "SST-2 dev": [row.text_a for row in sentences[: args.num_sentences]],
        "film reviews": reviews[: args.num_reviews],
    }


def read_questions(args):
    """Returns the Squad of the first questions."""
    whole = squad.read_squad(f"{args.data_dir}/squad/dev-v1.1.json")
    questions = whole.questions[: args.num_questions]
    num_contexts = questions[-1].context + 1
    return squad.Squad(whole.contexts[:num_contexts], questions)


def build_start(args):
    """Returns a `pretrained.Pretrained` with random weights."""
    tokenizer = tokenization.build_tokenizer(spm_model_file=args.spm_model_file)
    config = AlbertConfig.from_json_file(args.albert_config_file)
    return pretrained.Pretrained("random weights", {}, config, tokenizer)


def build_tuning(task, start, dtype):
    """Returns a FineTuning that predicts with random weights."""
    recipe = Recipe(from_scratch=True, compute_dtype=dtype)
    folder = tempfile.TemporaryDirectory()
    tuning = FineTuning(folder.name, task, start, recipe)
    tuning.kept = folder
    return tuning


def forget_traces(tuning):
    """Makes the next prediction trace again, like the first of a program."""
    tuning._predictors.clear()


def classify(start, texts, dtype):
    """Returns a function that predicts the labels of texts."""
    task = Classification.from_texts(
        start.tokenizer, texts[:2], ["0", "1"], max_seq_length=512
    )
    tuning = build_tuning(task, start, dtype)

    def run():
        forget_traces(tuning)
        return task.predict(tuning, texts)

    return run


def embed_texts(start, texts, dtype):
    """Returns a function that computes the vectors of texts."""
    model = modeling.AlbertEncoder(start.config, dtype=layers.POLICIES[dtype])

    def run():
        rows = examples.encode_texts(start.tokenizer, texts)
        function = embedder.build_function(model)
        ids = [row[:510] for row in rows]
        return embedder.compute(function, start.tokenizer, ids, 512)

    return run


def answer(start, asked, dtype):
    """Returns a function that gives the logits of all windows."""
    encode = functools.partial(
        windows.encode_squad, asked, start.tokenizer, WINDOWS, is_training=False
    )
    task = Answering("v1", WINDOWS, asked=asked, encoded=encode())
    tuning = build_tuning(task, start, dtype)

    def run():
        forget_traces(tuning)
        return tuning.predict(encode())

    return run


class Transformers:
    """The same workloads in transformers."""

    def __init__(self, start, dtype):
        import torch
        import transformers

        self.torch, self.transformers = torch, transformers
        self.dtype = getattr(torch, dtype)
        model = start.tokenizer._model
        self.tokenizer = transformers.AlbertTokenizer(
            [
                (model.id_to_piece(i), model.get_score(i))
                for i in range(len(model))
            ],
            model_max_length=512,
        )
        self.config = peers.transformers_config(start.config)

    def pipeline(self, task, model_class, texts, is_sorted):
        """Returns a function that runs a pipeline over texts."""
        kwargs: dict = {"truncation": True}
        if task == "feature-extraction":
            kwargs = {"tokenize_kwargs": kwargs, "return_tensors": True}
        run = self.transformers.pipeline(
            task,
            model=model_class(self.config).eval().to(self.dtype),
            tokenizer=self.tokenizer,
            device="cpu",
            batch_size=BATCH_SIZE,
        )

        def predict():
            given = sorted(texts, key=len) if is_sorted else texts
            return run(given, **kwargs)

        return predict

    def classify(self, texts, is_sorted):
        """See `pipeline`."""
        model = self.transformers.AlbertForSequenceClassification
        return self.pipeline("text-classification", model, texts, is_sorted)

    def embed(self, texts, is_sorted):
        """See `pipeline`."""
        model = self.transformers.AlbertModel
        return self.pipeline("feature-extraction", model, texts, is_sorted)

    def answer(self, asked, is_sorted):
        """Returns a function that gives the logits of all windows."""
        model = self.transformers.AlbertForQuestionAnswering(self.config)
        model.eval().to(self.dtype)
        questions = [question.text for question in asked.questions]
        contexts = [asked.contexts[q.context] for q in asked.questions]

        def predict():
            encoded = self.tokenizer(
                questions,
                contexts,
                truncation="only_second",
                max_length=WINDOWS.max_seq_length,
                stride=WINDOWS.doc_stride,
                return_overflowing_tokens=True,
                return_offsets_mapping=True,
                return_token_type_ids=True,
                padding=False if is_sorted else "max_length",
            )
            names = ["input_ids", "attention_mask", "token_type_ids"]
            order = list(range(len(encoded["input_ids"])))
            if is_sorted:
                order = sorted(
                    order, key=lambda i: len(encoded["input_ids"][i])
                )
            logits = []
            for i in range(0, len(order), BATCH_SIZE):
                rows = order[i : i + BATCH_SIZE]
                batch = self.tokenizer.pad(
                    {
                        name: [encoded[name][row] for row in rows]
                        for name in names
                    },
                    return_tensors="pt",
                )
                with self.torch.inference_mode():
                    outputs = model(**batch)
                logits.append(outputs.start_logits.float().numpy())
                logits.append(outputs.end_logits.float().numpy())
            return logits

        return predict


def keras_hub_classify(args, start, texts, dtype, sequence_length):
    """Returns a function that classifies texts with KerasHub."""
    import keras_hub

    backbone = peers.keras_hub_backbone(start.config, dtype)
    preprocessor = keras_hub.models.AlbertTextClassifierPreprocessor(
        keras_hub.models.AlbertTokenizer(args.spm_model_file),
        sequence_length=sequence_length,
    )
    model = keras_hub.models.AlbertTextClassifier(
        backbone, num_classes=2, preprocessor=preprocessor
    )

    def run():
        model.make_predict_function(force=True)
        return model.predict(texts, batch_size=BATCH_SIZE, verbose=0)

    return run


def build_candidates(args, start, work, texts, dtype):
    """Returns a dict of name -> (function, number of its texts)."""
    ours = {"classify": classify, "embed": embed_texts, "answer": answer}[work]
    count = len(texts.questions if work == "answer" else texts)
    runs = {"albert_tf": (ours(start, texts, dtype), count)}
    if not args.peers:
        return runs
    theirs = getattr(Transformers(start, dtype), work)
    runs["transformers, usual"] = theirs(texts, False), count
    runs["transformers, best"] = theirs(texts, True), count
    if work == "classify":
        longest = max(map(len, start.tokenizer.encode_batch(texts))) + 2
        hub = functools.partial(keras_hub_classify, args, start, dtype=dtype)
        few = texts[: args.num_usual]
        runs["KerasHub, usual"] = hub(few, sequence_length=512), len(few)
        if longest < 512:
            runs["KerasHub, best"] = hub(texts, sequence_length=longest), count
    return runs


def measure(args, runs):
    """Returns the median texts per second, by candidate."""
    rates: dict = {name: [] for name in runs}
    for _ in range(args.num_turns):
        for name, (run, count) in runs.items():
            began = time.perf_counter()
            run()
            rates[name].append(count / (time.perf_counter() - began))
    return {name: statistics.median(some) for name, some in rates.items()}


def run(args):
    """Prints a table with a row per candidate, workload and dtype."""
    print(
        f"Load average before: {os.getloadavg()[0]:.2f}. {args.num_turns} "
        f"turns.\n\n| work | candidate | texts/s | speedup of albert_tf |\n"
        "|---|---|---|---|",
        flush=True,
    )
    start, texts = build_start(args), read_texts(args)
    works = [
        (work, name, some)
        for work in ("classify", "embed")
        for name, some in texts.items()
    ]
    works.append(("answer", "SQuAD dev", read_questions(args)))
    for work, name, some in works:
        if work not in args.works.split(","):
            continue
        for dtype in args.dtypes.split(","):
            rates = measure(
                args, build_candidates(args, start, work, some, dtype)
            )
            for candidate, rate in rates.items():
                print(
                    f"| {work} {name} {dtype} | {candidate} | {rate:.1f} | "
                    f"{rates['albert_tf'] / rate:.2f} |",
                    flush=True,
                )


if __name__ == "__main__":
    flags.launch(run, BenchmarkFlags)

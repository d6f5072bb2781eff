"""Groups of flags that several commands share."""

import dataclasses
from typing import ClassVar, Literal

from albert_tf import filesystem, flags, settings
from albert_tf.flags import flag
from albert_tf.tasks import recipes

_CHECKPOINT_FORMATS = (
    "albert_base_v2 or another released model, which is downloaded; TF1 "
    "prefix, .index file, folder or tar, TF Hub module, Hugging Face folder, "
    "or KerasHub preset."
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeviceFlags(flags.Flags):
    """Devices and numeric precision of training."""

    use_tpu: bool = flag(False, "Same as --distribution=tpu.")
    tpu_name: str | None = flag(
        help='Name or address of the TPU; "local" on a TPU VM.'
    )
    tpu_zone: str | None = flag(help="Google Cloud zone of the TPU.")
    gcp_project: str | None = flag(help="Google Cloud project of the TPU.")
    master: str | None = flag(help="Ignored: address of a TF1 session.")
    num_tpu_cores: int = flag(
        8, "Ignored: the number of cores is detected.", at_least=0
    )

    @property
    def has_remote_tpu(self):
        """Whether the flags name a TPU other than that of this machine."""
        return self.tpu_name not in (None, "", "local")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainFlags(DeviceFlags):
    """Output and start of training; devices, too; settings are in a recipe."""

    output_dir: str = flag(
        required=True,
        help="Folder for checkpoints and results. Rerun the same command to "
        "resume from its newest checkpoint.",
    )
    init_checkpoint: str | None = flag(
        help=f"Checkpoint to start from: {_CHECKPOINT_FORMATS} Its weights "
        "are read only if --output_dir has no checkpoint."
    )
    do_train: bool = flag(False, "Whether to train.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class WindowFlags(flags.Flags):
    """Windows of a paragraph."""

    max_seq_length: int | None = flag(
        help="Maximum length of question and window together, in tokens. "
        "Default: without --do_train that of the fine-tuning; else 384, or the "
        "model's number of positions if that is less.",
        at_least=5,
    )
    doc_stride: int | None = flag(
        help="Distance between the starts of consecutive windows, in tokens. "
        "Default: 128; half a window if the model is too short for that.",
        at_least=1,
    )
    max_query_length: int | None = flag(
        help="Maximum length of a question, in tokens; longer ones are "
        "truncated. Default: 64, or half of a sequence too short for it.",
        at_least=1,
    )

    def fit(self, config):
        """Returns these flags with the lengths that are not given.

        Raises:
          ValueError: if the model has fewer positions than a given length.
        """
        lengths = {
            name: getattr(self, name)
            for name in ("max_seq_length", "doc_stride", "max_query_length")
        }
        return dataclasses.replace(
            self, **recipes.choose_windows(config, **lengths)
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class CasingFlags(flags.Flags):
    """Normalization of a text."""

    do_lower_case: bool | None = flag(
        help="Whether to lowercase the text. Default: as recorded with the "
        "vocabulary, else true."
    )
    keep_accents: bool | None = flag(
        help="Whether to keep accents and other combining characters. "
        "Default: as recorded with the vocabulary, else false."
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class FilesFlags(CasingFlags):
    """Files that replace or complete those next to a checkpoint; casing too."""

    albert_config_file: str | None = flag(
        help="JSON file with the architecture. Default: the one next to the "
        "checkpoint."
    )
    spm_model_file: str | None = flag(
        help="SentencePiece model, or a tokenizer.json of one. Default: the "
        "vocabulary next to the checkpoint."
    )
    vocab_file: str | None = flag(
        help="WordPiece vocabulary. Default: the vocabulary next to the "
        "checkpoint."
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class FolderFlags(flags.Flags):
    """Folder of a model to write."""

    to: str = flag(
        required=True, help="Output folder; it must be new or empty."
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class FormatFlags(FolderFlags):
    """Folder of a model to write; its format, too."""

    format: Literal["tf1", "own", "hf", "keras_hub"] = flag(
        "hf",
        "Output format: tf1 for the release's scripts, own for this package, "
        "hf for Hugging Face, keras_hub for a KerasHub preset.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class CopyFlags(FolderFlags, FilesFlags):
    """Checkpoint to read, and folder of the model that is made of it."""

    from_: str = flag(
        required=True, help=f"Checkpoint to read: {_CHECKPOINT_FORMATS}"
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextFlags(flags.Flags):
    """How files contain text."""

    input_format: Literal["auto", "text", "wikiextractor", "jsonl"] = flag(
        "auto",
        "What the text files are: plain text, the output of WikiExtractor, or "
        "JSON lines; auto detects it. Any may be compressed (gzip, bzip2, xz, "
        "zstd).",
    )
    text_key: str | None = flag(
        help="Key of the text in JSON lines, such as meta.text; absent, text "
        "or content."
    )


# What fine-tuning may be asked for; a program has some of these flags.
_WORK = "do_train", "do_eval", "do_predict", "export_dir", "export_text_dir"
# Flags that an ensemble contradicts.
_OF_ONE_MODEL = set(
    "init_checkpoint albert_hub_module_handle albert_config_file from_scratch "
    "num_runs export_dir export_text_dir exit_loss exit_threshold".split()
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FineTuningFlags(FilesFlags, TrainFlags, recipes.Recipe):
    """Data and checkpoints of fine-tuning; the settings are a Recipe."""

    # Flags of files, and what requires them.
    FILES: ClassVar[dict[str, str]] = {}

    albert_hub_module_handle: str | None = flag(
        help="TF Hub module to start from, a local folder or tar; same as "
        "--init_checkpoint."
    )
    ensemble: str | None = flag(
        help="Fine-tuned models that answer together, instead of "
        "--init_checkpoint: comma-separated folders, or globs such as "
        "out/run_*. Their outputs are averaged."
    )
    distribution: Literal["auto", "one_device", "mirrored", "tpu"] = flag(
        "auto",
        "Devices to train on; auto uses all GPUs, or the CPU if there are "
        "none.",
    )
    max_seq_length: int | None = flag(
        help="Maximum length of a sequence, in tokens; longer ones are "
        "truncated. Default: without --do_train that of the fine-tuning; else "
        "512, or the model's number of positions if that is less.",
        at_least=3,
    )
    do_predict: bool = flag(
        False, "Whether to write predictions of the best checkpoint."
    )
    eval_batch_size: int | None = flag(
        help="Ignored: evaluation has the batches of prediction.",
        at_least=1,
        at_most=settings.MAX_BATCH_SIZE,
    )
    hidden_dropout_prob: float | None = flag(
        help="Dropout rate of the encoder's hidden layers. Default: the "
        "config's.",
        at_least=0,
        below=1,
    )
    attention_probs_dropout_prob: float | None = flag(
        help="Dropout rate of the attention probabilities. Default: the "
        "config's.",
        at_least=0,
        below=1,
    )
    cached_dir: str | None = flag(
        help="Cache folder for encoded data, keyed by content. Default: no "
        "cache."
    )
    num_runs: int = flag(
        1,
        "Number of runs with different seeds, each in its own folder; the "
        "report states their median.",
        at_least=1,
        at_most=1000,
    )

    @property
    def source(self):
        """What to start from, by one of its flags, or None."""
        named = self.init_checkpoint or self.albert_hub_module_handle
        return named or self.ensemble

    @property
    def exports(self) -> dict[str, str]:
        """Folders of the SavedModels to write, by `ServingFlags`."""
        return {}

    def check(self):
        known = {field.name for field in dataclasses.fields(self)}
        check_has_work(self, *(name for name in _WORK if name in known))
        for name, wanting in self.FILES.items():
            if getattr(self, wanting) and not getattr(self, name):
                raise ValueError(f"Please give --{name}.")
        if self.init_checkpoint and self.albert_hub_module_handle:
            raise ValueError(
                "Give --init_checkpoint or --albert_hub_module_handle, not "
                "both."
            )
        if self.ensemble:
            self._check_ensemble()
        if self.from_scratch and self.source:
            raise ValueError(
                f"--from_scratch contradicts the checkpoint {self.source}. "
                "Give one of the two."
            )
        if self.from_scratch and not self.do_train:
            raise ValueError(
                "--from_scratch without --do_train: random weights predict "
                "nothing. Add --do_train, or give --init_checkpoint."
            )

    def _check_ensemble(self):
        """Raises ValueError if a flag is of training or of a single model."""
        given = [
            f"omit --{field.name}"
            for field in dataclasses.fields(self)
            if field.name in _OF_ONE_MODEL
            and getattr(self, field.name) not in (field.default, "")
        ]
        if self.do_train:
            given = ["give --nodo_train"]
        if given:
            raise ValueError(
                f"--ensemble={self.ensemble}: fine-tuned models are scored and "
                f"predict together; {given[0]}."
            )

    def fit(self, config):
        """As `WindowFlags.fit`."""
        length = config.choose_length(self.max_seq_length)
        return dataclasses.replace(self, max_seq_length=length)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EpochFlags(FineTuningFlags):
    """Fine-tuning whose steps are given as epochs."""

    num_train_epochs: float | None = flag(
        3.0, "Number of training epochs, unless --train_step is given."
    )
    warmup_proportion: float | None = flag(
        0.1,
        "Fraction of all steps used for warmup, unless --warmup_step is given.",
    )
    train_step: int | None = flag(
        help="Number of training steps, instead of --num_train_epochs."
    )
    warmup_step: int | None = flag(  # type: ignore[assignment]
        help="Number of linear warmup steps, instead of --warmup_proportion."
    )

    def choose_steps(self):
        """Returns these flags, without epochs or shares if steps are given."""
        replaced: dict = {}
        if self.train_step is not None:
            replaced["num_train_epochs"] = None
        if self.warmup_step is not None:
            replaced["warmup_proportion"] = None
        return dataclasses.replace(self, **replaced)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServingFlags(flags.Flags):
    """SavedModels for serving that take token ids, or text."""

    export_dir: str | None = flag(
        help="Output folder for a SavedModel of the best checkpoint, of "
        "several runs that with the best score; without scores, the first."
    )
    export_compact: bool = flag(
        False,
        "Store large weights of SavedModels only once, in the data type of "
        "products (--compute_dtype): half the size or less, but they cannot "
        "be named in --init_checkpoint.",
    )
    export_text_dir: str | None = flag(
        help="Output folder for a SavedModel that takes text instead of token "
        "ids; it requires tensorflow-text both here and when it is loaded."
    )

    def check(self):
        folders = set(map(filesystem.identity, self.exports.values()))
        if len(folders) < len(self.exports):
            raise ValueError(
                f"--export_dir and --export_text_dir are both "
                f"{self.export_dir}: a server would serve only the newer model "
                "of the two. Give two folders."
            )
        if self.export_compact and not self.exports:
            raise ValueError(
                "--export_compact needs --export_dir or --export_text_dir."
            )
        super().check()

    @property
    def exports(self) -> dict[str, str]:
        """Folders of the SavedModels to write, by what these take."""
        folders = {"ids": self.export_dir, "text": self.export_text_dir}
        return {kind: folder for kind, folder in folders.items() if folder}


@dataclasses.dataclass(frozen=True, kw_only=True)
class PartsFlags(ServingFlags, EpochFlags):
    """Fine-tuning on files of train, dev and test data, named by flags."""

    FILES: ClassVar[dict[str, str]] = {
        "train_file": "do_train",
        "dev_file": "do_eval",
        "predict_file": "do_predict",
    }

    do_eval: bool = flag(
        False,
        "Whether to evaluate on --dev_file: at each checkpoint while "
        "training, or all existing checkpoints without --do_train.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckpointFlags(flags.Flags):
    """Checkpoint to read."""

    init_checkpoint: str = flag(
        required=True, help=f"Checkpoint: {_CHECKPOINT_FORMATS}"
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelFlags(FilesFlags, CheckpointFlags):
    """Checkpoint to read, and files that replace or complete its own."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnswersFlags(ModelFlags):
    """Fine-tuned model, its texts, and the file of its answers."""

    ENDINGS: ClassVar[tuple[str, ...]] = (".jsonl",)

    text: str | None = flag(
        help="Texts, one per line, or in several flags.", has_lines=True
    )
    input_file: str | None = flag(
        help="Text file with a text on each line, instead of --text."
    )
    output_file: str | None = flag(
        help="Output file, .jsonl. Default: print the answers."
    )
    max_seq_length: int | None = flag(
        help="Maximum length of a text, in tokens with [CLS] and [SEP]; longer "
        "ones are truncated. Default: that of the fine-tuning; if it is "
        "unknown 512, or the model's number of positions.",
        at_least=3,
    )
    compute_dtype: settings.ComputeDtype = flag(
        recipes.Recipe.compute_dtype,
        "Data type of matrix products, as in training.",
    )

    def check(self):
        if bool(self.text) == bool(self.input_file):
            raise ValueError(
                "Give either --text or --input_file; a text must not be empty."
            )
        filesystem.check_ending("--output_file", self.output_file, self.ENDINGS)
        super().check()


@dataclasses.dataclass(frozen=True, kw_only=True)
class PageFlags(flags.Flags):
    """Output files of a tool that shows figures."""

    output_file: str | None = flag(help="Output .html file: tables and plots.")
    json_file: str | None = flag(help="Output .json file: all figures.")

    def check(self):
        """Raises ValueError if an output file has another ending."""
        filesystem.check_ending("--output_file", self.output_file, [".html"])
        filesystem.check_ending("--json_file", self.json_file, [".json"])


def check_has_work(args, *names):
    """Checks that at least one of the named flags is set.

    Raises:
      ValueError: if none is.
    """
    if not any(getattr(args, name) for name in names):
        *first, last = (f"--{name}" for name in names)
        raise ValueError(f"Give {', '.join(first)} or {last}: nothing to do.")

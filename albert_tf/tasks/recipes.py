"""The settings of fine-tuning and of pretraining.

The flags of the programs inherit them, so this module imports no TensorFlow.
"""

import dataclasses
from typing import Literal

from albert_tf import settings
from albert_tf.data.pretraining import rules
from albert_tf.settings import setting
from albert_tf.training.settings import (
    BETA_2,
    POLY_POWER,
    START_WARMUP_STEP,
    Schedule,
    Settings,
    scale_to_batch,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe(Settings):
    """Settings of fine-tuning.

    Example:
      >>> from albert_tf import Recipe
      >>> recipe = Recipe(num_train_epochs=2, warmup_proportion=0.1)
      >>> recipe.schedule(num_examples=320)[:3]
      (5e-05, 20, 2)
    """

    learning_rate: float = setting(5e-5, "Peak learning rate.", at_least=0)
    train_step: int | None = setting(
        1000, "Number of training steps.", at_least=1
    )
    warmup_step: int = setting(0, "Number of linear warmup steps.", at_least=0)
    num_train_epochs: float | None = setting(
        help="Number of training epochs, instead of train_step.",
        above=0,
        at_most=100_000,
    )
    warmup_proportion: float | None = setting(
        help="Fraction of all steps used for warmup, instead of warmup_step.",
        at_least=0,
        below=1,
    )
    classifier_dropout: float = setting(
        0.1,
        "Dropout rate between the encoder and the task's output layer.",
        at_least=0,
        below=1,
    )
    from_scratch: bool = setting(
        False,
        "Start from random weights; without it, a checkpoint is required.",
    )
    freeze_encoder: bool = setting(
        False, "Train the task's output layers alone, on a fixed encoder."
    )
    bucket_lengths: str = setting(
        "32,64,128,256",
        "Comma-separated shorter lengths to which training batches are padded "
        "if all their sequences fit; empty pads every batch to "
        "max_seq_length.",
    )
    predict_batch_size: int | None = setting(
        help="Global batch size of evaluation and prediction, in examples. "
        "Default: as many as tokens_per_batch allows.",
        at_least=1,
        at_most=settings.MAX_BATCH_SIZE,
    )
    tokens_per_batch: int = setting(
        4096,
        "Number of tokens per batch and replica in evaluation and prediction, "
        "padding included.",
        at_least=1,
        at_most=settings.MAX_TOKENS,
    )

    def schedule(self, num_examples: int) -> Schedule:
        """Returns the learning rate and number of steps for training examples.

        Raises:
          ValueError: if there are no training steps after warmup.

        Source: run_squad_v1.py for epochs and proportion.
        """
        num_steps, num_warmup_steps = self.train_step or 0, self.warmup_step
        if self.num_train_epochs is not None:
            num_steps = int(
                num_examples / self.train_batch_size * self.num_train_epochs
            )
        if self.warmup_proportion is not None:
            num_warmup_steps = int(num_steps * self.warmup_proportion)
        if num_steps < 1 or num_warmup_steps >= num_steps:
            raise ValueError(
                f"Too few training steps: {num_steps}, including "
                f"{num_warmup_steps} warmup steps, for {num_examples} examples "
                f"in batches of {self.train_batch_size}."
            )
        return Schedule(self.learning_rate, num_steps, num_warmup_steps)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingRecipe(Settings):
    """Settings of pretraining; the defaults are the paper's.

    Example:
      >>> from albert_tf import PretrainingRecipe
      >>> recipe = PretrainingRecipe(
      ...     train_batch_size=1024, learning_rate="auto"
      ... )
      >>> recipe.schedule()[:3]
      (0.00088, 125000, 781)
    """

    train_batch_size: int = setting(4096)
    optimizer: settings.OptimizerName = setting("lamb")
    learning_rate: float | Literal["auto"] = setting(
        0.00176,
        "Peak learning rate. auto: LAMB's rate and warmup for "
        "train_batch_size, scaled from the paper's 0.00176 at 4096.",
        at_least=0,
    )
    poly_power: float = setting(
        POLY_POWER,
        "Exponent of the polynomial learning rate decay.",
        at_least=0,
    )
    num_train_steps: int = setting(
        125000, "Number of training steps.", at_least=1
    )
    num_warmup_steps: int = setting(
        3125, "Number of linear warmup steps.", at_least=0
    )
    start_warmup_step: int = setting(
        START_WARMUP_STEP,
        "Step at which warmup starts; the learning rate is 0 before it. "
        "Without num_warmup_steps it has no effect.",
        at_least=0,
    )
    beta_2: float = setting(
        BETA_2,
        "Decay rate of the optimizer's second moment.",
        at_least=0,
        below=1,
    )
    save_checkpoints_steps: int = setting(
        5000, "Number of steps between checkpoints."
    )
    eval_batch_size: int = setting(
        64,
        "Global evaluation batch size, in examples.",
        at_least=1,
        at_most=settings.MAX_BATCH_SIZE,
    )
    max_eval_steps: int = setting(
        0,
        "Maximum number of batches to evaluate; 0 evaluates all examples (the "
        "release: 100).",
        at_least=0,
    )
    sentence_weight: float | None = setting(
        help="Weight of the sentence loss; 0 trains on masked LM alone. "
        "Default: 1, or 0 for records without a sentence objective.",
        at_least=0,
    )
    initialization: Literal["release", "neighbors"] = setting(
        "release",
        "Values of random weights. release: a truncated normal. neighbors: "
        "attention begins on neighboring tokens, and the model learns more "
        "than frequencies from its first steps (docs/plateau.md).",
    )
    min_num_layers: int | None = setting(
        help="Each step, device and part of a batch draws how many layers it "
        "computes, from this number to all: steps are faster, and fewer layers "
        "than all are of use later. Default: all.",
        at_least=1,
    )
    num_sampled_pieces: int | None = setting(
        help="Number of pieces among which a training step predicts its "
        "masked ones: these and others, drawn at random; as many as a device "
        "masks at a time if that is more. Steps of small models are faster. "
        "Default: all pieces.",
        at_least=1,
    )
    init_from_group0: bool = setting(
        False,
        "Initialize every group with the weights of group 0 in "
        "init_checkpoint.",
    )
    shuffle_buffer: int = setting(
        rules.SHUFFLE_BUFFER,
        "Size of the shuffle buffer, in records.",
        at_least=1,
        at_most=1 << 30,
    )
    stop_on_divergence: bool = setting(
        True,
        "Whether to stop when much of what was learned is lost or gradients "
        "explode.",
    )

    def __post_init__(self):
        super().__post_init__()
        self.check_schedule()

    def check_schedule(self):
        """Raises ValueError if settings contradict each other."""
        if self.learning_rate == "auto" and self.optimizer != "lamb":
            raise ValueError(
                "learning_rate=auto is a rule for optimizer=lamb; give a "
                "number."
            )
        self.schedule().check()
        if self.min_num_layers and self.remat:
            raise ValueError(
                "min_num_layers draws the number of layers, which remat=True "
                "needs to know: give one of them."
            )

    def check_start(self, source: str | None):
        """Raises ValueError if weights are asked for in two ways."""
        if source and self.initialization != "release":
            raise ValueError(
                f"initialization={self.initialization} is a choice of random "
                f"weights, but {source} was given to start from. Omit it, or "
                "set initialization=release."
            )

    def schedule(self) -> Schedule:
        """Returns the learning rate and number of steps."""
        rate, num_warmup_steps = self.learning_rate, self.num_warmup_steps
        if rate == "auto":
            rate, scaled = scale_to_batch(
                self.train_batch_size, self.num_train_steps
            )
            # A given number is kept; the class has the default.
            if num_warmup_steps == type(self).num_warmup_steps:
                num_warmup_steps = scaled
        return Schedule(
            rate,
            self.num_train_steps,
            num_warmup_steps,
            self.start_warmup_step,
            self.poly_power,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExitSettings(settings.Checked):
    """How a classifier answers after fewer layers than it has.

    Example:
      >>> from albert_tf.tasks.recipes import ExitSettings
      >>> ExitSettings(exit_loss=True).exit_tolerance
      0.5
    """

    exit_loss: bool = setting(
        False,
        "Train an answer after every layer: the loss is the mean over layers, "
        "in proportion to their numbers. Texts whose answer is sure after few "
        "layers are then predicted without the others.",
    )
    exit_tolerance: float = setting(
        0.5,
        "How much the score on dev may lose by answers after few layers, in "
        "points (hundredths), a standard error of the loss included.",
        at_least=0,
        at_most=100,
    )
    exit_threshold: float | None = setting(
        help="Answer after the first layer whose uncertainty is below this: "
        "the entropy of its probabilities, from 0 to 1. 0 takes all layers. "
        "Default: chosen on dev by exit_tolerance, or the one stored in the "
        "model folder; 0 if there is none.",
        at_least=0,
        at_most=1,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class VectorSettings(settings.Checked):
    """How vectors of texts are made and trained.

    Example:
      >>> from albert_tf.tasks.recipes import VectorSettings
      >>> VectorSettings(pooling="cls").temperature
      0.05
    """

    pooling: settings.Pooling = setting(
        "mean_all", "One of `vector_heads.POOLINGS`."
    )
    temperature: float = setting(
        0.05, "Temperature of the softmax over cosines.", above=0
    )


def choose_part(given: int | None, usual: int, room: int) -> int:
    """Returns the length of a part of a sequence.

    Args:
      given: the length asked for, or None.
      usual: the length if none is given and it fits.
      room: the greatest length that fits. Otherwise, half of it is used.
    """
    if given is None:
        return usual if usual <= room else max(room // 2, 1)
    return given


def choose_windows(
    config,
    *,
    max_seq_length: int | None = None,
    doc_stride: int | None = None,
    max_query_length: int | None = None,
) -> dict[str, int]:
    """Returns the settings of windows, those that are None chosen.

    Args:
      config: the model's AlbertConfig.
      max_seq_length: as for `WindowSettings`, like the others.
      doc_stride: half a window if the usual one does not fit.
      max_query_length: half a sequence if the usual one does not fit.

    Raises:
      ValueError: if the model has fewer positions than a given length.
    """
    length = config.choose_length(max_seq_length, 384)
    # [CLS], 2 [SEP] and a token of the paragraph.
    query = choose_part(max_query_length, 64, length - 4)
    # A given length keeps the release's stride, whatever fits.
    room = length - query - 3 if max_seq_length is None else 128
    return {
        "max_seq_length": length,
        "doc_stride": choose_part(doc_stride, 128, room),
        "max_query_length": query,
    }


def choose_stride(max_seq_length: int, doc_stride: int | None) -> int:
    """Returns the stride of a tagger's windows: half of one, unless given."""
    return max(max_seq_length // 2, 1) if doc_stride is None else doc_stride


# Settings of the beam of SQuAD 2.0's head.
BEAM = ("start_n_top", "end_n_top")


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnswerSettings(settings.Checked):
    """How answers are chosen among the spans that a SQuAD model proposes.

    Example:
      >>> from albert_tf.tasks.recipes import AnswerSettings
      >>> AnswerSettings(n_best_size=5).max_answer_length
      30
    """

    n_best_size: int = setting(
        20,
        "Number of answers per question in nbest_predictions.json. In v1, "
        "answers are also formed of so many starts and ends of each window, "
        "so that fewer than the default change predictions and scores.",
        at_least=1,
        at_most=10_000,
    )
    max_answer_length: int = setting(
        30, "Maximum length of an answer, in tokens.", at_least=1
    )
    start_n_top: int = setting(
        5, "v2: number of start positions in the beam.", at_least=1, at_most=512
    )
    end_n_top: int = setting(
        5,
        "v2: number of end positions in the beam per start position.",
        at_least=1,
        at_most=512,
    )
    null_score_diff_threshold: float | None = setting(
        help="v2: give an answer if the no-answer score is below this "
        "threshold. Default: the best one on predict_file, or the one stored "
        "in the model folder if that file contains no answers.",
        at_least=-1e9,
        at_most=1e9,
    )


def recall_answers(head) -> dict[str, int]:
    """Returns the `AnswerSettings` of the fine-tuning, by name.

    As far as `head`, the `task_heads.TaskHead` of the model, or None, has them.
    """
    known = head.lengths if head else {}
    return {n: known[n] for n in ("max_answer_length", *BEAM) if n in known}

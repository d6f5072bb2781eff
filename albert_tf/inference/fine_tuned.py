"""Loads fine-tuned models for the classes that are called with texts."""

import functools
from collections.abc import Collection

import tensorflow as tf

from albert_tf.model import layers
from albert_tf.training import distribution, evaluation
from albert_tf.weights import pretrained, task_heads


def check_head(
    start: pretrained.Complete,
    kinds: Collection[str],
    wanted: str,
    program: str,
) -> task_heads.TaskHead:
    """Returns the head of a fine-tuned model.

    Args:
      start: the model.
      kinds: kinds of heads that can be used.
      wanted: what such a model is, in words.
      program: name of the program that trains one.

    Raises:
      ValueError: if it has another head or none.
    """
    head = start.head
    if head is None or head.kind not in kinds:
        found = f"the head {head.kind!r}" if head else "no head of a task"
        raise ValueError(
            f"{start.source} has {found}; wanted {wanted}. Fine-tune one with "
            f"{program}, or give the folder of one."
        )
    return head


def build_predictor(
    start: pretrained.Complete,
    compute_dtype: str,
    exit_threshold: float | None = None,
    **beam,
) -> evaluation.Predictor:
    """Builds a model with the weights of `start` and its predictor.

    The weights must not change any more.

    Args:
      start: the model.
      compute_dtype: as for `Recipe`.
      exit_threshold: as for `Predictor`.
      **beam: as for `task_heads.build_model`.
    """
    strategy = tf.distribute.get_strategy()
    dtype = distribution.choose_compute_dtype(compute_dtype, strategy)
    build = functools.partial(
        task_heads.build_model, start, dtype=layers.POLICIES[dtype], **beam
    )
    model = pretrained.build_model(build, start)
    return evaluation.Predictor(strategy, model, exit_threshold, is_fixed=True)

"""Objects built from flags that several programs share."""

import dataclasses

import tensorflow as tf

from albert_tf import errors
from albert_tf.training import distribution


def build_strategy(args):
    """Returns the strategy given by the flags, and checks the batch sizes.

    Args:
      args: a `groups.DeviceFlags` that also has batch sizes.

    Raises:
      ValueError: as `distribution.build_strategy` and `check_batch_size`, or if
        the flags contradict each other.
    """
    if args.use_tpu and args.distribution not in ("auto", "tpu"):
        raise ValueError(
            f"--use_tpu contradicts --distribution={args.distribution}. Give "
            "one of the two."
        )
    strategy = distribution.build_strategy(
        "tpu" if args.use_tpu else args.distribution,
        tpu_name=args.tpu_name,
        tpu_zone=args.tpu_zone,
        gcp_project=args.gcp_project,
        # Where the chief alone writes may be another folder elsewhere.
        settings=dataclasses.asdict(args) | {"output_dir": None},
    )
    num_replicas = strategy.num_replicas_in_sync
    if args.xla and num_replicas > 1 and not distribution.is_tpu(strategy):
        raise ValueError(
            f"--xla compiles a step for one device, but {num_replicas} are "
            "used. Omit it, or give --distribution=one_device."
        )
    for name, value in dataclasses.asdict(args).items():
        if not name.endswith("_batch_size") or value is None:
            continue
        work, num_parts = name.removesuffix("_batch_size"), 1
        if work in ("train", "eval") and not getattr(args, f"do_{work}", True):
            continue
        if work == "train":
            num_parts = args.gradient_accumulation_steps
        distribution.check_batch_size(strategy, value, name, num_parts)
    return strategy


def import_text_serving(wanted_by):
    """Returns the module `text_serving`, which needs tensorflow-text.

    Args:
      wanted_by: the flag that requires it, for the message.

    Raises:
      ImportError: if tensorflow-text is not installed, or is made for another
        version of TensorFlow.
    """
    try:
        from albert_tf.export import text_serving
    except ImportError as error:
        raise ImportError(
            f"{wanted_by} needs tensorflow-text ({error}): "
            "pip install tensorflow-text."
        ) from error
    except tf.errors.NotFoundError as error:  # A symbol, in its library.
        raise ImportError(
            f"{wanted_by} needs a tensorflow-text that fits TensorFlow "
            f"{tf.__version__} ({errors.first_line(error)}): pip install "
            f"'tensorflow-text=={tf.__version__.rpartition('.')[0]}.*'."
        ) from error
    return text_serving

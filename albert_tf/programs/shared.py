"""Objects built from flags that several programs share."""

import dataclasses

import tensorflow as tf

from albert_tf import errors, filesystem
from albert_tf.training import distribution, workers


def check_devices(args):
    """Raises ValueError if `groups.TrainFlags` contradict each other."""
    if args.use_tpu and args.distribution not in ("auto", "tpu"):
        raise ValueError(
            f"--use_tpu contradicts --distribution={args.distribution}. Give "
            "one of the two."
        )
    is_tpu = args.use_tpu or args.distribution == "tpu"
    num_hosts = workers.count_hosts()
    is_alone = args.distribution != "multi_worker" and not is_tpu
    if args.do_train and is_alone and num_hosts > 1:
        raise ValueError(
            f"TF_CONFIG lists {num_hosts} hosts, each of which would train a "
            "model of its own. Give --distribution=multi_worker to "
            "run_pretraining; start other programs on one host, without "
            "TF_CONFIG."
        )
    # At an address, the TPU's host may be this machine.
    is_named = args.has_remote_tpu and "://" not in args.tpu_name
    if is_tpu and is_named and not filesystem.is_remote(args.output_dir):
        raise ValueError(
            f"--output_dir={args.output_dir} is a local path; wanted gs://..., "
            f"as the hosts of the TPU {args.tpu_name!r} write there. (On a TPU "
            "VM with one host, give --tpu_name=local.)"
        )


def build_strategy(args):
    """Returns the strategy given by `groups.TrainFlags`.

    Raises:
      ValueError: as `distribution.build_strategy` or `check_devices`.
    """
    check_devices(args)
    return distribution.build_strategy(
        "tpu" if args.use_tpu else args.distribution,
        tpu_name=args.tpu_name,
        tpu_zone=args.tpu_zone,
        gcp_project=args.gcp_project,
        # Where the chief alone writes may be another folder elsewhere.
        settings=dataclasses.asdict(args) | {"output_dir": None},
    )


def import_text_serving(wanted_by):
    """Returns the module `text_serving`, which the flag `wanted_by` requires.

    Raises:
      ImportError: if tensorflow-text is not installed, or is made for another
        version of TensorFlow.
    """
    # With its dependencies, it would replace TensorFlow for TPUs.
    version = tf.__version__.rpartition(".")[0]
    install = f"pip install --no-deps 'tensorflow-text=={version}.*'"
    try:
        from albert_tf.export import text_serving
    except ImportError as error:
        raise ImportError(
            f"{wanted_by} needs tensorflow-text ({error}): {install}."
        ) from error
    except tf.errors.NotFoundError as error:  # A symbol, in its library.
        raise ImportError(
            f"{wanted_by} needs a tensorflow-text that fits TensorFlow "
            f"{tf.__version__} ({errors.first_line(error)}): {install}."
        ) from error
    return text_serving

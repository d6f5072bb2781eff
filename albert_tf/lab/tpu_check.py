"""Compiles the training step of run_pretraining for a TPU, without a TPU."""

import dataclasses
import math

from albert_tf import filesystem
from albert_tf.lab import flops, lowering, tpu_environment
from albert_tf.model.config import AlbertConfig
from albert_tf.training import distribution, memory
from albert_tf.training.memory import GIB

# No core holds a larger batch.
LARGEST_BATCH = 1 << 14
# The first size of a search, in units of --batch_multiple.
FIRST_MULTIPLE = 64


def run(args):
    """Checks one batch size, or finds the largest that fits."""
    config = AlbertConfig.from_json_file(args.albert_config_file)
    length = config.choose_length(args.max_seq_length)
    args = dataclasses.replace(args, max_seq_length=length)
    if args.max_predictions_per_seq > length:
        raise ValueError(
            f"--max_predictions_per_seq={args.max_predictions_per_seq} is more "
            f"than the {length} tokens of a sequence (--max_seq_length)."
        )
    if args.num_replicas:
        check_batch_size(args, args.num_replicas)
    recipe = build_recipe(args)
    compiler = tpu_environment.Compiler(
        tpu_environment.prepare(args.environment or filesystem.cache_folder()),
        args.topology,
    )
    num_replicas = args.num_replicas or compiler.num_cores
    if num_replicas > compiler.num_cores:
        raise ValueError(
            f"--num_replicas={num_replicas}: {args.topology} has only "
            f"{compiler.num_cores} cores."
        )
    check_batch_size(args, num_replicas)
    print(
        f"{args.topology}: {compiler.num_cores} cores ({compiler.device}), "
        f"{compiler.available_bytes / GIB:.2f} GiB each; {num_replicas} "
        "replicas.",
        flush=True,
    )
    step = lowering.PretrainingStep(
        config,
        num_replicas,
        max_seq_length=args.max_seq_length,
        max_predictions_per_seq=args.max_predictions_per_seq,
        recipe=recipe,
    )
    if args.find_batch:
        report_largest(step, compiler, args.batch_multiple)
    else:
        report(step, compiler, args.train_batch_size // num_replicas)


def check_batch_size(args, num_replicas):
    """Raises ValueError if the batch cannot be divided evenly."""
    num_parts = args.gradient_accumulation_steps
    if args.train_batch_size:
        distribution.check_batch_size(
            lowering.CompileOnlyStrategy(num_replicas),
            args.train_batch_size,
            "train_batch_size",
            num_parts,
        )
    elif args.batch_multiple % num_parts:
        raise ValueError(
            f"--batch_multiple={args.batch_multiple} must be a multiple of "
            f"--gradient_accumulation_steps={num_parts}."
        )


def build_recipe(args):
    """Returns the `PretrainingRecipe` of the flags."""
    return dataclasses.replace(
        lowering.LAMB,
        gradient_accumulation_steps=args.gradient_accumulation_steps,
        optimizer=args.optimizer,
        compute_dtype=args.compute_dtype,
        remat=args.remat,
        min_num_layers=args.min_num_layers,
        num_sampled_pieces=args.num_sampled_pieces,
    )


def compile_step(step, compiler, batch_size):
    """Compiles a step for a batch size of each replica.

    Returns:
      Figures as `Compiler.compile`, and the FLOPs counted by hand: in all, and
      with each loop counted once, as the compiler does.
    """
    return {
        **compiler.compile(step.lower(batch_size), step.num_replicas),
        "flops_by_hand": count_flops(step, batch_size),
        "flops_loops_once": count_flops(step, batch_size, loops_once=True),
    }


def count_flops(step, batch_size, loops_once=False):
    """Returns the FLOPs of a replica's step, counted by hand.

    A step that draws how many layers it computes counts as one of all. With
    `loops_once`, the body of a loop counts once, as for XLA.
    """
    config, recipe, num_layers = step.config, step.recipe, None
    part_size = batch_size // recipe.gradient_accumulation_steps
    num_pieces = memory.count_pieces(
        config, recipe.num_sampled_pieces, part_size * step.lengths[1]
    )
    if loops_once:
        # The parts of a batch are a loop, and so are the recomputed layers of a
        # group.
        batch_size = part_size
        if recipe.remat:
            *others, last = config.count_uses().values()
            # The last layer is not in a loop.
            num_layers = len(others) + (last > 1) + 1
    return flops.count_flops(
        dataclasses.replace(config, vocab_size=num_pieces),
        batch_size,
        *step.lengths,
        num_layers=num_layers,
        remat=recipe.remat,
    )


def report(step, compiler, batch_size):
    """Compiles a step for a batch size of each replica, and prints figures."""
    print(
        f"Compiling for {batch_size} sequences a core, which takes minutes.",
        flush=True,
    )
    figures = compile_step(step, compiler, batch_size)
    if "error" in figures:
        raise ValueError(
            f"{batch_size} sequences a core do not fit: "
            f"{describe_shortage(figures['error'])} Lower --train_batch_size, "
            "or find the largest that fits with --find_batch."
        )
    print(describe(figures, compiler.available_bytes))


def describe_shortage(error):
    """Returns the part of the compiler's error about a lack of memory."""
    line = error.splitlines()[0]
    return line.partition("CompileTimeHbmOom: ")[2] or line


def describe(figures, available_bytes):
    """Returns the figures of a step as lines of text."""
    peak, by_hand = figures["peak_bytes"], figures["flops_by_hand"]
    once = figures["flops_loops_once"]
    difference = figures["flops"] / once - 1
    lines = [
        f"memory       {peak / GIB:.2f} GiB a core at the peak, "
        f"{peak / available_bytes:.0%} of {available_bytes / GIB:.2f} GiB; "
        f"{figures['argument_bytes'] / GIB:.2f} GiB of it are weights, "
        "optimizer and batch",
        f"FLOPs        {by_hand:.3g} a core and step, counted by hand. With "
        f"each loop counted once: {once:.3g}, by the compiler "
        f"{figures['flops']:.3g} ({difference:+.1%})",
        f"compilation  {figures['seconds']:.0f} s on this machine",
    ]
    if "all_reduces" in figures:
        sizes = ", ".join(map(str, figures["all_reduces"]))
        lines.insert(
            2,
            f"all-reduces  {len(figures['all_reduces'])} a step, of {sizes} "
            "tensors",
        )
    return "\n".join(lines)


def report_largest(step, compiler, multiple):
    """Finds the largest batch size of a replica; prints each attempt."""

    def compile_and_say(batch_size):
        figures = compile_step(step, compiler, batch_size)
        if "error" in figures:
            result = describe_shortage(figures["error"])
        else:
            result = f"{figures['peak_bytes'] / GIB:.2f} GiB."
        seconds = f"{figures['seconds']:.0f} s"
        print(f"{batch_size} a core ({seconds}): {result}", flush=True)
        return figures

    available = compiler.available_bytes
    tried = find_largest(compile_and_say, multiple, available)
    largest = largest_fitting(tried)
    if not largest:
        raise ValueError(f"Not even {multiple} sequences a core fit.")
    print(
        f"The largest multiple of {multiple} that fits is {largest} sequences "
        f"a core: --train_batch_size={largest * step.num_replicas}"
    )
    print(describe(tried[largest], available))


def largest_fitting(tried):
    """Returns the largest size among figures by size that fits, or 0."""
    return max((x for x in tried if "error" not in tried[x]), default=0)


def find_largest(compile_at, multiple, available_bytes, tried=None):
    """Finds the largest batch size that fits, by bisection.

    The next size is guessed from the memory of those that were tried; if that
    is not between the bounds, it is their middle. The first is too large on
    purpose: the compiler detects that in a fraction of its usual time.

    Args:
      compile_at: function from batch size to figures: "peak_bytes", or "error"
        and perhaps "needed_bytes" if the step does not fit.
      multiple: all sizes are multiples of it.
      available_bytes: memory of a core.
      tried: figures by batch size that are known already.

    Returns:
      Figures by batch size. They include those of the next multiple after the
      largest size that fits, except at LARGEST_BATCH.
    """
    tried = dict(tried or {})
    while True:
        low = largest_fitting(tried)
        failed = [x for x in tried if "error" in tried[x] and x > low]
        high = min(failed, default=LARGEST_BATCH // multiple * multiple)
        if high - low <= multiple:
            return tried
        size = guess(tried, available_bytes) // multiple * multiple
        if not failed and not low:
            size = min(FIRST_MULTIPLE * multiple, high)
        elif size == low:
            size += multiple
        elif not low < size < high:
            size = (low + high) // 2 // multiple * multiple
        tried[size] = compile_at(size)


def guess(tried, available_bytes):
    """Returns the batch size at which memory is expected to be full."""
    points = sorted(
        (abs(math.log(needed / available_bytes)), size, needed)
        for size, figures in tried.items()
        if (needed := figures.get("peak_bytes", figures.get("needed_bytes")))
    )
    if not points:
        return 0
    # The line through the two nearest, or through a single one and the origin.
    (_, x0, y0), (_, x1, y1) = [*points, (0, 0, 0)][:2]
    if y0 == y1:
        return 0
    guessed = x0 + (available_bytes - y0) * (x1 - x0) / (y1 - y0)
    return int(min(max(guessed, 0), LARGEST_BATCH))

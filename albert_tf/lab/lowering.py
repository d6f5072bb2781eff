"""Lowers a training step of many replicas to HLO, on a machine without them.

`CompileOnlyStrategy` takes the place of TPUStrategy while a step is traced.
The result is what XLA compiles; TensorFlow cannot run it on several replicas.

TensorFlow lowers the step with its XLA kernels for CPUs, because those for TPUs
need a TPU. For this step they differ only in the random number generator, which
`albert_tf.lab.tpu_compiler` replaces.
"""

import hashlib
import re

import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops
from tensorflow.python.distribute import one_device_strategy

from albert_tf.model import heads, layers, modeling
from albert_tf.tasks.recipes import PretrainingRecipe
from albert_tf.training import optimization, replicas


class CompileOnlyStrategy(tf.distribute.Strategy):
    """A strategy of many replicas whose steps can be lowered but not run.

    As under TPUStrategy, one trace serves all replicas, a replica's number is
    a tensor, and sums over replicas are operations of the graph.
    """

    def __init__(self, num_replicas):
        super().__init__(_Extended(self, num_replicas))


class _Extended(one_device_strategy.OneDeviceExtended):
    """Variables on one device; everything else as for many replicas."""

    def __init__(self, strategy, num_replicas):
        super().__init__(strategy, "/device:CPU:0")
        self.num_replicas = num_replicas

    @property
    def _num_replicas_in_sync(self):
        return self.num_replicas

    def _use_merge_call(self):
        return False

    def _call_for_each_replica(self, fn, args, kwargs):
        with tf.distribute.ReplicaContext(
            self._container_strategy(),
            replica_id_in_sync_group=gen_xla_ops.xla_replica_id(),
        ):
            return fn(*args, **kwargs)

    def _replica_ctx_all_reduce(self, reduce_op, value, options=None):
        del options
        if reduce_op != tf.distribute.ReduceOp.SUM:
            raise NotImplementedError(f"{reduce_op}; wanted SUM.")
        everyone = tf.constant([list(range(self.num_replicas))], tf.int32)
        return tf.nest.map_structure(
            lambda x: gen_xla_ops.xla_all_reduce(
                input=x,
                group_assignment=everyone,
                reduce_op="Add",
                mode="CrossReplica",
            ),
            value,
        )


def feature_specs(batch_size, max_seq_length, max_predictions_per_seq):
    """Returns the features of a pretraining batch, dict of name -> TensorSpec.

    They are those that `reading.build_dataset` yields for training.
    """
    tokens = tf.TensorSpec([batch_size, max_seq_length], tf.int32)
    shape = [batch_size, max_predictions_per_seq]
    predictions = tf.TensorSpec(shape, tf.int32)
    specs = {
        "input_ids": tokens,
        "input_mask": tokens,
        "segment_ids": tokens,
        "masked_lm_positions": predictions,
        "masked_lm_ids": predictions,
        "masked_lm_weights": tf.TensorSpec(shape, tf.float32),
        "sentence_order_labels": tf.TensorSpec([batch_size], tf.int32),
    }
    return {n: tf.TensorSpec(s.shape, s.dtype, n) for n, s in specs.items()}


# The seed is a constant of the step, which fingerprints of it depend on.
LAMB = PretrainingRecipe(compute_dtype="bfloat16", random_seed=0)


def build_replica_step(strategy, config, recipe):
    """Returns `replicas.build_replica_step` of a model of random weights."""
    with strategy.scope():
        model = heads.AlbertForPreTraining(
            config,
            min_num_layers=recipe.min_num_layers,
            num_sampled_pieces=recipe.num_sampled_pieces,
            dtype=layers.POLICIES[recipe.compute_dtype],
        )
        weights = modeling.named_weights(model)
        optimizer = optimization.build_optimizer(
            recipe.optimizer,
            {name: weight.value for name, weight in weights.items()},
            # Its values cost neither time nor memory.
            optimization.build_schedule(*recipe.schedule()),
        )
        return replicas.build_replica_step(model, optimizer, recipe)


class PretrainingStep:
    """The training step of `run_pretraining`, to lower at several batch sizes.

    The default recipe is LAMB in bfloat16.
    """

    def __init__(
        self,
        config,
        num_replicas,
        *,
        max_seq_length=512,
        max_predictions_per_seq=20,
        recipe=LAMB,
    ):
        self.config, self.num_replicas = config, num_replicas
        self.lengths = max_seq_length, max_predictions_per_seq
        self.recipe = recipe
        self.strategy = CompileOnlyStrategy(num_replicas)
        self.replica_step = build_replica_step(self.strategy, config, recipe)

    def lower(self, batch_size, stage="hlo_serialized"):
        """Returns the step for a batch size of each replica.

        Args:
          batch_size: sequences of each replica.
          stage: "hlo_serialized" for the bytes of an HloModuleProto, "hlo" for
            text.
        """
        specs = feature_specs(batch_size, *self.lengths)

        # TensorFlow lowers functions of tensors, not of dicts.
        @tf.function(jit_compile=True, autograph=False)
        def step(*features):
            named = dict(zip(specs, features, strict=True))
            return self.strategy.run(self.replica_step, args=(named,))

        return step.experimental_get_compiler_ir(*specs.values())(stage=stage)

    def fingerprint(self, batch_size):
        """Returns a digest of the lowered step, without names and metadata."""
        text = self.lower(batch_size, stage="hlo")
        # Below the first line, which names the function, instructions contain
        # " = "; the rest are tables of files and lines.
        lines = [line for line in text.splitlines()[1:] if " = " in line]
        code = re.sub(r", metadata=\{[^}]*\}", "", "\n".join(lines))
        numbers: dict = {}
        code = re.sub(
            r"(?<![\w.])[A-Za-z_][\w-]*\.\d+",
            lambda name: f"x{numbers.setdefault(name[0], len(numbers))}",
            code,
        )
        return hashlib.sha256(code.encode()).hexdigest()[:16]

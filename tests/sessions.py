"""A session around a given model, for tests of the loop alone."""

import dataclasses
import typing

from albert_tf.training import reporting, settings, workers
from albert_tf.weights import checkpoints


@dataclasses.dataclass
class ModelSession:
    """What `loop.train` needs of a `session.Session`."""

    strategy: typing.Any
    model: typing.Any
    optimizer: typing.Any
    manager: checkpoints.CheckpointManager
    reporter: reporting.Reporter
    settings: settings.Settings
    num_train_steps: int

    @property
    def workers(self):
        return workers.find_workers(self.strategy)

    @property
    def step(self):
        return int(self.optimizer.step.numpy())

    def save(self, **kwargs):
        return self.manager.save(**kwargs)

    def check_frozen(self):
        """Nothing is frozen."""

r"""Opens a local page to try a model on.

    albert demo --init_checkpoint=out

serves http://127.0.0.1:8765 until it is interrupted: for a fine-tuned
classifier a text and the probabilities of its labels; for a model of run_squad
a paragraph and a question, with the answer marked; for a pretrained model
a sentence with [MASK] and its candidates. Below, the attention of each token,
layer by layer. The page loads nothing from elsewhere, and only this machine can
open it; from another one, use a tunnel: ssh -L 8765:127.0.0.1:8765 HOST.
"""

import dataclasses

from albert_tf.commands import groups
from albert_tf.flags import flag


@dataclasses.dataclass(frozen=True, kw_only=True)
class DemoFlags(groups.ModelFlags):
    """Model and port."""

    port: int = flag(
        8765, "Port of the page; 0 for any free one.", at_least=0, below=1 << 16
    )


COMMAND = "albert_tf.programs.demo", DemoFlags

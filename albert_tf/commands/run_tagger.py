r"""Fine-tunes and evaluates ALBERT on words with tags, such as named entities.

python run_tagger.py --train_file=train.conll --dev_file=dev.conll \
    --init_checkpoint=albert_base_v2 --output_dir=out --do_train --do_eval
"""

import dataclasses

from albert_tf.commands import groups
from albert_tf.flags import flag
from albert_tf.tasks import recipes


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaggerFlags(groups.PartsFlags):
    """Words with tags."""

    train_file: str | None = flag(
        help="Training data: CoNLL (columns; a blank line ends a sentence), "
        "JSON lines (.jsonl: tokens and tags, or text and spans), or a table "
        "of words (.csv)."
    )
    dev_file: str | None = flag(help="Data to score each checkpoint on.")
    predict_file: str | None = flag(
        help="Data to tag with the best checkpoint; the predictions are "
        "scored if it has tags."
    )
    word_column: str | None = flag(
        help="Column of the words: a number from 0, or from the end if "
        "negative; in a .csv, its name. Default: 0; 1 in .conllu; in a .csv "
        "Word or Token."
    )
    tag_column: str | None = flag(
        help="Column of the tags, as for --word_column. Default: -1; 3 in "
        ".conllu (UPOS); in a .csv Tag or Label."
    )
    doc_stride: int | None = flag(
        help="Tokens between the starts of consecutive windows of a sentence "
        "that is too long for one. Default: half of --max_seq_length.",
        at_least=1,
    )

    def fit(self, config):
        """As `WindowFlags.fit`."""
        args = super().fit(config)
        stride = recipes.choose_stride(args.max_seq_length, args.doc_stride)
        return dataclasses.replace(args, doc_stride=stride)


COMMAND = "albert_tf.programs.run_tagger", TaggerFlags

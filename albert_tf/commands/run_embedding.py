r"""Trains and scores vectors of texts, near for texts of the same meaning.

python run_embedding.py --train_file=train.tsv --dev_file=dev.tsv \
    --init_checkpoint=albert_base_v2 --output_dir=out --do_train --do_eval

Pairs without scores are trained so that the second text is nearest to the first
of all texts of a batch; pairs with scores, so that their cosines are these.
Single texts are paired with themselves, by other dropout (SimCSE).
"""

import dataclasses

from albert_tf import settings
from albert_tf.commands import groups
from albert_tf.flags import flag
from albert_tf.tasks import recipes


@dataclasses.dataclass(frozen=True, kw_only=True)
class EmbeddingFlags(groups.PartsFlags):
    """Pairs of texts; pooling and temperature."""

    train_file: str | None = flag(
        help="Training data: a table of pairs (.tsv, .csv or .jsonl), such as "
        "those of STS-B or MNLI, or a text on each line (.txt)."
    )
    dev_file: str | None = flag(
        help="Data to score each checkpoint on, like --train_file: by "
        "Spearman's correlation if it has scores, else by the rank of each "
        "second text."
    )
    predict_file: str | None = flag(
        help="Data to write cosines of, and to score, with the best checkpoint."
    )
    text_columns: str = flag(
        "",
        "Names of the columns of texts, separated by commas: one, two, or "
        "three, of which the last one is a wrong second text. Default: known "
        "names, such as sentence1,sentence2 or anchor,positive,negative.",
    )
    pooling: settings.Pooling | None = flag(
        help="mean_all: the mean of a text's tokens, as in "
        "sentence-transformers; mean: except [CLS] and [SEP]; cls: the vector "
        "of [CLS]. Default: that of a model of run_embedding, else mean_all."
    )
    temperature: float = flag(
        recipes.VectorSettings.temperature,
        "Temperature of the softmax over the cosines of a text and the second "
        "texts of its batch.",
        above=0,
    )
    score_column: str | None = flag(
        help="Name of the column of scores. Default: score or similarity."
    )


COMMAND = "albert_tf.programs.run_embedding", EmbeddingFlags

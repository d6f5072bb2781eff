"""Fine-tunes and evaluates ALBERT on words with tags."""

import os

from albert_tf.data import examples, tagged, word_windows
from albert_tf.metrics import tagging
from albert_tf.programs import finetuning
from albert_tf.tasks.tagging import Part, Tagging

# Share of words with capital letters in text of scripts that have them.
MANY_CAPITALS = 0.05
# Names of `args.FILES` in the task.
PARTS = {"train_file": "train", "dev_file": "dev", "predict_file": "test"}


def read_files(args):
    """Returns a `tagged.TaggedFile` for each part that the flags require."""
    files = {}
    for name, wanting in args.FILES.items():
        if getattr(args, wanting):
            files[PARTS[name]] = tagged.read_tagged(
                getattr(args, name),
                word_column=args.word_column,
                tag_column=args.tag_column,
                has_tags=None if name == "predict_file" else True,
            )
    return files


def choose_labels(files, model):
    """Returns the tags of the training data, or those of the model."""
    if "train" in files:
        return tagged.list_tags([files["train"]])
    head = model.head
    if not head or head.kind != "tags" or not head.labels:
        raise ValueError(
            f"{model.source} does not say what tags it predicts; wanted the "
            "folder of a run of run_tagger. To train, give --do_train."
        )
    return head.labels


def encode(args, file, tokenizer, labels):
    """Returns the Part of a file, from the cache if possible."""
    lengths = args.max_seq_length, args.doc_stride
    has_tags = all(sentence.tags is not None for sentence in file.sentences)
    labels = labels if has_tags else ()
    encoded = examples.cached_examples(
        args.cached_dir,
        os.path.basename(file.path),
        [file.sentences, tokenizer.settings, lengths, labels],
        lambda: word_windows.encode_sentences(
            file.sentences, tokenizer, *lengths, labels
        ),
    )
    return Part(file, encoded)


def describe_tags(files, labels, tokenizer):
    """Yields sentences on what may be wrong with the data or vocabulary.

    Raises:
      ValueError: if a file has other tags than the model.
    """
    for name, file in files.items():
        found = {*tagged.list_tags([file])} - ({"O"} & {*labels})
        others = found - {*labels}
        if found and found == others:
            raise ValueError(
                f"{file.path} has the tags {sorted(found)[:5]}; wanted some of "
                f"{[x for x in labels if x != 'O'][:5]}. Is it another column "
                "(tag_column)?"
            )
        if name != "train" and others:
            yield (
                f"WARNING: {file.path} has the tags {sorted(others)[:5]}, "
                "which are never predicted: the training data does not have "
                "them."
            )
    are_spans = any(tagging.is_span_tag(tag) for tag in labels if tag != "O")
    are_capital = [
        word != word.lower()
        for file in files.values()
        for sentence in file.sentences
        for word in sentence.words
    ]
    # Chinese has few: names of other languages.
    has_capitals = sum(are_capital) > MANY_CAPITALS * len(are_capital)
    if are_spans and has_capitals and tokenizer.settings["do_lower_case"]:
        yield (
            "The vocabulary is uncased, and names are mostly recognized by "
            "their capital letters: a cased one may give better results."
        )


def read_task(args, model):
    """Returns the `Tagging` with the data that the flags require."""
    word_windows.check_lengths(args.max_seq_length, args.doc_stride)
    files = read_files(args)
    labels = choose_labels(files, model)
    for text in describe_tags(files, labels, model.tokenizer):
        print(text)
    return Tagging(
        {
            name: encode(args, file, model.tokenizer, labels)
            for name, file in files.items()
        },
        labels,
        max_seq_length=args.max_seq_length,
        doc_stride=args.doc_stride,
    )


def run(args):
    """Trains, evaluates, tags and exports as requested by the flags."""
    ending = os.path.splitext(args.predict_file or "")[1]
    finetuning.check_outputs(args, [f"predictions{ending}"])
    finetuning.run(args.choose_steps(), read_task)

"""The `albert` command, which runs each program or tool by name.

albert run_classifier --help
albert inspect_checkpoint --init_checkpoint=albert_base_v2

`python -m albert_tf` is equivalent.
"""

import difflib
import sys

from albert_tf import __version__, commands, filesystem, flags

PROGRAMS = {
    "create_pretraining_data": "convert text to pretraining records",
    "run_pretraining": "pretrain on these records",
    "run_classifier": "fine-tune on GLUE or a table of text",
    "run_squad": "fine-tune on SQuAD 1.1, 2.0 or similar data",
    "run_race": "fine-tune on RACE, DREAM or C3",
    "run_tagger": "fine-tune on words with tags",
    "run_embedding": "train and score vectors of texts",
    "export_to_tfhub": "export an encoder for TF Hub",
}
TOOLS = {
    "split_sentences": "split text into sentences, one on each line",
    "train_vocab": "train a vocabulary on text",
    "extend_vocab": "add words to a model's vocabulary",
    "initialize": "write an untrained model that begins on neighbors",
    "download": "download GLUE, SQuAD or RACE",
    "run_glue": "fine-tune on all GLUE tasks",
    "classify": "classify texts with a fine-tuned model",
    "tag": "tag words with a fine-tuned model",
    "fill_mask": "predict the [MASK] tokens of a text",
    "embed": "compute vectors of texts",
    "answer": "answer questions about a paragraph",
    "demo": "try a model in the browser",
    "convert_checkpoint": "convert a checkpoint to another format",
    "convert_to_litert": "convert a SavedModel to LiteRT",
    "inspect_checkpoint": "print the contents of a checkpoint",
    "analyze": "count parameters, operations and memory of a config",
    "layers": "measure what each pass through the layers does",
    "ablate": "train models that differ in one thing each",
    "tpu_check": "compile the pretraining step for a TPU, without one",
    "plot_metrics": "plot training curves",
    "report": "write an HTML report of a training run",
}


def usage():
    """Returns the text of `albert --help`."""
    lines = ["albert COMMAND --flag=value ...", "albert COMMAND --help"]
    lines += ["albert --version", ""]
    for name, meaning in {**PROGRAMS, **TOOLS}.items():
        lines.append(f"  {name:26}{meaning}")
    lines += ["", f"Configs and recipes: {filesystem.shipped_configs()}"]
    return "\n".join(lines)


def main():
    """Runs the command named by the first argument; returns exit status."""
    name, *words = sys.argv[1:] or ["--help"]
    if name in ("--help", "-h", "help") and words:  # albert help COMMAND
        name, words = words[0], ["--help"]
    with flags.quiet_pipe():
        if name in ("--help", "-h", "help"):
            print(usage())
            return 0
        if name in ("--version", "version"):
            print(f"albert_tf {__version__}")
            return 0
    if name not in PROGRAMS | TOOLS:
        near = difflib.get_close_matches(
            name.replace("-", "_"), [*PROGRAMS, *TOOLS]
        )
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        print(
            f"albert: unknown command {name!r}.{hint} albert --help lists the "
            "commands.",
            file=sys.stderr,
        )
        return 1
    if name == "download" and words and not words[0].startswith("-"):
        words[0] = f"--data={words[0]}"
    # The program's name in --help and in errors.
    sys.argv = [f"albert {name}", *words]
    return flags.launch(*commands.find(name))


if __name__ == "__main__":
    sys.exit(main())

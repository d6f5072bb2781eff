"""The command `albert`: each of the programs and tools, by its name.

albert run_classifier --help
albert embed --model=albert_base.tar.gz --input_file=sentences.txt

`python -m albert_tf` is the same.
"""

import importlib
import sys

from albert_tf import filesystem

PROGRAMS = {
    "create_pretraining_data": "text to pretraining records",
    "run_pretraining": "pretrain on such records",
    "run_classifier": "fine-tune and score on GLUE, or a table of text",
    "run_squad": "fine-tune and score on SQuAD 1.1, 2.0 and the like",
    "run_race": "fine-tune and score on RACE",
    "export_to_tfhub": "write an encoder for TF Hub",
}
TOOLS = {
    "train_vocab": "learn a vocabulary from text",
    "run_glue": "fine-tune every GLUE task",
    "fill_mask": "fill [MASK] in a sentence",
    "embed": "vectors of texts",
    "answer": "answer questions with an exported model",
    "convert_checkpoint": "a checkpoint in another form",
    "convert_to_litert": "a SavedModel for small devices",
    "inspect_checkpoint": "what a checkpoint holds",
    "plot_metrics": "draw the curves of trainings",
    "report": "one page of HTML about a training",
}


def usage():
    """Returns what `albert --help` says."""
    lines = ["albert COMMAND --flag=value ...", "albert COMMAND --help", ""]
    for name, meaning in {**PROGRAMS, **TOOLS}.items():
        lines.append(f"  {name:26}{meaning}")
    lines += ["", f"Configs and recipes: {filesystem.shipped_configs()}"]
    return "\n".join(lines)


def main():
    """Runs the command that the first word names; returns exit status."""
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name in ("--help", "-h", "help"):
        print(usage())
        return 0
    if name not in PROGRAMS | TOOLS:
        print(
            f"albert: there is no command {name!r}.\n{usage()}", file=sys.stderr
        )
        return 1
    # What --help and errors call this program.
    sys.argv[:2] = [f"albert {name}"]
    return importlib.import_module(f"albert_tf.commands.{name}").main()


if __name__ == "__main__":
    sys.exit(main())

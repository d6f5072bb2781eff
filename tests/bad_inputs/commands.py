"""Each program and tool, with flags by which it runs well on `world`."""

import shlex

from albert_tf import commands, flags

_FINE_TUNING = (
    "--init_checkpoint=model --output_dir=new --train_batch_size=4 "
    "--eval_batch_size=4 --predict_batch_size=4 --train_step=2 "
    "--warmup_step=0 --learning_rate=1e-3 --max_seq_length=16 "
    "--bucket_lengths="
)
# Program -> the flags that a row's own follow.
COMMANDS = {
    "create_pretraining_data": (
        "--input_file=text.txt --output_file=made.tfrecord "
        "--vocab_file=vocab.txt --max_seq_length=16 "
        "--max_predictions_per_seq=3 --dupe_factor=2 --noprogress"
    ),
    "run_pretraining": (
        "--input_file=train.tfrecord --eval_input_file=valid.tfrecord "
        "--do_eval --albert_config_file=model/albert_config.json "
        "--output_dir=new --train_batch_size=4 --eval_batch_size=4 "
        "--num_train_steps=2 --num_warmup_steps=0 --shuffle_buffer=100 "
        "--learning_rate=1e-3"
    ),
    "run_classifier": (
        f"{_FINE_TUNING} --task_name=sst-2 --data_dir=glue --do_train "
        "--do_eval --do_predict"
    ),
    "run_squad": (
        f"{_FINE_TUNING} --train_file=v1.json --predict_file=v1.json "
        "--do_train --do_predict --doc_stride=4 --max_query_length=4 "
        "--n_best_size=2"
    ),
    "run_race": (
        f"{_FINE_TUNING} --data_dir=race --max_qa_length=6 --do_predict"
    ),
    "run_tagger": (
        f"{_FINE_TUNING} --train_file=tags.txt --dev_file=tags.txt "
        "--predict_file=tags.txt --do_train --do_eval --do_predict"
    ),
    "run_embedding": (
        f"{_FINE_TUNING} --train_file=pairs.tsv --dev_file=pairs.tsv "
        "--predict_file=pairs.tsv --do_train --do_eval --do_predict"
    ),
    "export_to_tfhub": (
        "--albert_directory=model --export_path=new --seq_length=16"
    ),
    "train_vocab": (
        "--input_file=text.txt --model_prefix=new/pieces --vocab_size=34 "
        "--num_threads=1"
    ),
    "extend_vocab": "--from=model --to=new --words_file=new_words.txt",
    "initialize": (
        "--albert_config_file=model/albert_config.json "
        "--vocab_file=vocab.txt --input_file=text.txt --to=new"
    ),
    "convert_checkpoint": "--from=model --to=new --format=hf",
    "inspect_checkpoint": "--init_checkpoint=model",
    "embed": (
        "--init_checkpoint=model --input_file=text.txt "
        "--output_file=new.npz --max_seq_length=16"
    ),
    "fill_mask": "--init_checkpoint=model --text='w1 [MASK] w2'",
    "tag": "--init_checkpoint=tagger --text='w1 w2'",
    "answer": (
        "--init_checkpoint=serving/squad --question=w1 --paragraph='w2 w3 w4' "
        "--max_seq_length=16 --max_query_length=4"
    ),
    "convert_to_litert": (
        "--saved_model=serving/classifier --output=new.tflite --seq_length=8"
    ),
    "run_glue": (
        "--data_dir=glue --output_dir=new --init_checkpoint=model --tasks=sst-2"
    ),
    "plot_metrics": (
        "--metrics_file=pretrained/metrics.jsonl --output_file=new.svg"
    ),
    "analyze": (
        "--albert_config_file=model/albert_config.json --output_file=new.html "
        "--seq_lengths=16 --max_predictions_per_seq=3"
    ),
    "layers": (
        "--init_checkpoint=model --input_file=text.txt --max_seq_length=16 "
        "--num_sequences=4 --output_file=new.html"
    ),
    "ablate": (
        "--grid=grid.json --train_text=text.txt --heldout_text=other_text.txt "
        "--vocab_file=vocab.txt --output_dir=new --report_only"
    ),
    # Each row ends before the environment is made, which takes a network.
    "tpu_check": (
        "--albert_config_file=model/albert_config.json --num_replicas=4 "
        "--train_batch_size=8 --max_seq_length=16 "
        "--max_predictions_per_seq=3 --environment=a_file"
    ),
    "report": "--output_dir=pretrained --output_file=new.html",
}

# Those of them that write, each to the folder `disk`.
WRITING = (
    "create_pretraining_data --output_file=disk/made.tfrecord",
    "run_pretraining --output_dir=disk/out",
    "run_classifier --output_dir=disk/out",
    "run_squad --output_dir=disk/out",
    "run_race --output_dir=disk/out",
    "run_tagger --output_dir=disk/out",
    "run_embedding --output_dir=disk/out",
    "export_to_tfhub --export_path=disk/hub --nowith_preprocessor",
    "train_vocab --model_prefix=disk/w",
    "extend_vocab --to=disk/x",
    "initialize --to=disk/x",
    "convert_checkpoint --to=disk/hf",
    "embed --output_file=disk/v.jsonl",
    "plot_metrics --output_file=disk/x.svg",
    "report --output_file=disk/x.html",
    "analyze --output_file=disk/x.html",
    "layers --output_file=disk/x.html",
    "ablate --output_dir=disk/x",
)


def split_command(command):
    """Returns the program of a command, and all its words.

    "bare" in front leaves out the flags by which it would run well.
    """
    program, *words = shlex.split(command)
    if program == "bare":
        return words[0], words[1:]
    return program, [*shlex.split(COMMANDS[program]), *words]


def call(command):
    """Does a command in this process; returns its exit status."""
    return call_program(*split_command(command))


def call_program(program, words):
    """Does what `call` does, of a program's name and all its words."""
    return flags.run_command(*commands.find(program), words)

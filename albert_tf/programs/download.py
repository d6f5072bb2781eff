"""Downloads GLUE, SQuAD and RACE, verified by their SHA-256 digests.

Source: addresses and digests, from the datasets glue, squad, squad_v2 and race
of Hugging Face (github.com/huggingface/datasets, dataset_infos.json); the same
addresses of GLUE, and how MRPC's tables are made, from GLUE's own script
(github.com/nyu-mll/GLUE-baselines, download_glue_data.py).
"""

import os
import shutil
import tarfile
import zipfile

from albert_tf import filesystem, ownership
from albert_tf.data import table_tasks
from albert_tf.weights import downloads

_WORDS = """
https://dl.fbaipublicfiles.com/glue/data/CoLA.zip
f212fcd832b8f7b435fb991f101abf89f96b933ab400603bf198960dfc32cbff
https://dl.fbaipublicfiles.com/glue/data/SST-2.zip
d67e16fb55739c1b32cdce9877596db1c127dc322d93c082281f64057c16deaa
https://dl.fbaipublicfiles.com/senteval/senteval_data/msr_paraphrase_train.txt
60a9b09084528f0673eedee2b69cb941920f0b8cd0eeccefc464a98768457f89
https://dl.fbaipublicfiles.com/senteval/senteval_data/msr_paraphrase_test.txt
a04e271090879aaba6423d65b94950c089298587d9c084bf9cd7439bd785f784
https://dl.fbaipublicfiles.com/glue/data/mrpc_dev_ids.tsv
971d7767d81b997fd9060ade0ec23c4fc31cbb226a55d1bd4a1bac474eb81dc7
https://dl.fbaipublicfiles.com/glue/data/STS-B.zip
e60a6393de5a8b5b9bac5020a1554b54e3691f9d600b775bd131e613ac179c85
https://dl.fbaipublicfiles.com/glue/data/QQP-clean.zip
40e7c862c04eb26ee04b67fd900e76c45c6ba8e6d8fab4f8f1f8072a1a3fbae0
https://dl.fbaipublicfiles.com/glue/data/MNLI.zip
e7c1d896d26ed6caf700110645df426cc2d8ebf02a5ab743d5a5c68ac1c83633
https://dl.fbaipublicfiles.com/glue/data/QNLIv2.zip
e634e78627a29adaecd4f955359b22bf5e70f2cbd93b493f2d624138a0c0e5f5
https://dl.fbaipublicfiles.com/glue/data/RTE.zip
6bf86de103ecd335f3441bd43574d23fef87ecc695977a63b82d5efb206556ee
https://dl.fbaipublicfiles.com/glue/data/WNLI.zip
ae0e8e4d16f4d46d4a0a566ec7ecceccfd3fbfaa4a7a4b4e02848c0f2561ac46
https://dl.fbaipublicfiles.com/glue/data/AX.tsv
0e13510b1bb14436ff7e2ee82338f0efb0133ecf2e73507a697dc210db3f05fd
https://rajpurkar.github.io/SQuAD-explorer/dataset/train-v1.1.json
3527663986b8295af4f7fcdff1ba1ff3f72d07d61a20f487cb238a6ef92fd955
https://rajpurkar.github.io/SQuAD-explorer/dataset/dev-v1.1.json
95aa6a52d5d6a735563366753ca50492a658031da74f301ac5238b03966972c9
https://rajpurkar.github.io/SQuAD-explorer/dataset/train-v2.0.json
68dcfbb971bd3e96d5b46c7177b16c1a4e7d4bdef19fb204502738552dede002
https://rajpurkar.github.io/SQuAD-explorer/dataset/dev-v2.0.json
80a5225e94905956a6446d296ca1093975c4d3b3260f1d6c8f68bc2ab77182d8
http://www.cs.cmu.edu/~glai1/data/race/RACE.tar.gz
b2769cc9fdc5c546a693300eb9a966cec6870bd349fbc44ed5225f8ad33006e5
""".split()
# Addresses and SHA-256 digests, by the name of the file.
SOURCES = {
    os.path.basename(url): (url, sha256)
    for url, sha256 in zip(_WORDS[::2], _WORDS[1::2], strict=True)
}
# Folders of GLUE -> the files from which their tables are made.
GLUE = {
    "CoLA": ["CoLA.zip"],
    "SST-2": ["SST-2.zip"],
    "MRPC": [
        "msr_paraphrase_train.txt",
        "msr_paraphrase_test.txt",
        "mrpc_dev_ids.tsv",
    ],
    "STS-B": ["STS-B.zip"],
    "QQP": ["QQP-clean.zip"],
    "MNLI": ["MNLI.zip"],
    "QNLI": ["QNLIv2.zip"],
    "RTE": ["RTE.zip"],
    "WNLI": ["WNLI.zip"],
    "diagnostic": ["AX.tsv"],
}
SQUAD = [
    f"{part}-v{version}.json"
    for version in ("1.1", "2.0")
    for part in ("train", "dev")
]
RACE = "RACE.tar.gz"


def run(args):
    """Downloads what the folder lacks."""
    if filesystem.is_remote(args.to):
        raise ValueError(
            f"--to={args.to} is remote; wanted a local folder. Copy it from "
            "there."
        )
    with ownership.owning_folder(args.to) as folder:
        makers = {"glue": make_glue, "squad": make_squad, "race": make_race}
        makers[args.data](folder)
    print(f"The data are in {args.to}.")


def make_glue(folder):
    """Writes the tables of GLUE that are not there."""
    tables = [t for task in table_tasks.GLUE.values() for t in task.tables]
    for name, sources in GLUE.items():
        files = sorted(
            {t.file for t in tables if t.file.startswith(f"{name}/")}
        )
        files = [f for f in files if not os.path.exists(f"{folder}/{f}")]
        if not files:
            continue
        fetched = [fetch(source, folder) for source in sources]
        filesystem.make_folder(os.path.join(folder, name))
        if name == "MRPC":
            write_paraphrases(fetched, files, folder)
        elif fetched[0].endswith(".zip"):
            unpack_tables(fetched[0], files, folder)
        else:
            os.replace(fetched.pop(), os.path.join(folder, *files))
        for path in fetched:
            os.remove(path)


def make_squad(folder):
    """Downloads both versions of SQuAD."""
    for name in SQUAD:
        fetch(name, folder)


def make_race(folder):
    """Writes the folder RACE, if it is not there."""
    target = os.path.join(folder, "RACE")
    if os.path.exists(target):
        return
    archive = fetch(RACE, folder)
    temporary = f"{target}.incomplete"
    shutil.rmtree(temporary, ignore_errors=True)
    with tarfile.open(archive) as file:
        # Python before 3.12 may lack it; the content is known by its digest.
        is_known = hasattr(tarfile, "data_filter")
        safe: dict = {"filter": "data"} if is_known else {}
        file.extractall(temporary, **safe)
    os.rename(os.path.join(temporary, "RACE"), target)
    shutil.rmtree(temporary)
    os.remove(archive)


def fetch(name, folder):
    """Downloads one of SOURCES, if it is not there; returns its path."""
    path, (url, sha256) = os.path.join(folder, name), SOURCES[name]
    downloads.download(url, path, sha256)
    return path


def unpack_tables(archive, files, folder):
    """Unpacks files of a zip archive to their paths in a folder."""
    with zipfile.ZipFile(archive) as packed:
        for file in files:
            filesystem.write_file(os.path.join(folder, file), packed.read(file))


def write_paraphrases(sources, files, folder):
    """Writes tables of MRPC, `files` in a folder, as GLUE's script does.

    The first source has the rows of train and dev, the second those of test,
    and the last says which are of dev.
    """
    train_file, test_file, ids_file = sources

    def read(path):
        with open(path, encoding="utf-8") as file:
            return [line.strip().split("\t") for line in file]

    dev_ids = {tuple(row[:2]) for row in read(ids_file)}
    head, *rows = read(train_file)
    train, dev = (
        [head, *(r for r in rows if (tuple(r[1:3]) in dev_ids) == is_dev)]
        for is_dev in (False, True)
    )
    _, *rows = read(test_file)
    head = ["index", "#1 ID", "#2 ID", "#1 String", "#2 String"]
    test = [head, *([str(i), *r[1:]] for i, r in enumerate(rows))]
    tables = {"train.tsv": train, "dev.tsv": dev, "test.tsv": test}
    for file in files:
        rows = tables[os.path.basename(file)]
        text = "".join("\t".join(row) + "\n" for row in rows)
        filesystem.write_file(os.path.join(folder, file), text)

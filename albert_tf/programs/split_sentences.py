"""Splits text into sentences, one on each line."""

import re

from albert_tf import filesystem, ownership, progress
from albert_tf.data.pretraining import corpus, markup, spaced_words
from albert_tf.text import normalization

# sentencex takes digits after a Chinese full stop for decimals.
_BEFORE_DIGITS = re.compile(r"(?<=[。！？])(?=\d)")
# It also divides the bytes of other spaces than the usual one.
_OTHER_SPACES = re.compile(r"[^\S ]")
_UNSPACED_BREAK = re.compile(
    rf"(?<=[{spaced_words.WIDE}])\n(?=[{spaced_words.WIDE}{spaced_words.SHARED}])"
    rf"|(?<=[{spaced_words.SHARED}])\n(?=[{spaced_words.WIDE}])"
)


def run(args):
    """Writes the sentences of text files; returns their number."""
    language = check_language(args.language)
    segment = _find_segment()
    files = filesystem.expand_files(args.input_file)
    filesystem.check_outputs(
        {"--output_file": [args.output_file]}, {"--input_file": files}
    )
    text = markup.TextFormat(args.input_format, args.text_key)
    markup.say_formats(map(text.detect, files))
    num_sentences, path = 0, args.output_file
    with ownership.owning(path), filesystem.writing(path) as output:
        done = progress.Progress("splitting", None, "sentences")
        for paragraph in _join_lines(corpus.read_lines(files, text.open), args):
            sentences = _split(paragraph, language, segment)
            lines = [s.strip() for s in sentences if s.strip()]
            # A blank line separates documents.
            content = "".join(f"{line}\n" for line in lines or [""])
            output.write(content.encode())
            num_sentences += len(lines)
            done.add(len(lines))
        done.clear()
        if not num_sentences:
            raise ValueError(f"There is no text in {', '.join(files)}.")
    print(f"Wrote {num_sentences:,} sentences to {args.output_file}.")
    return num_sentences


def _find_segment():
    """Returns the function of sentencex that splits a text."""
    try:
        import sentencex
    except ModuleNotFoundError:
        raise ImportError(
            "split_sentences needs the extra `corpus`: pip install sentencex."
        ) from None
    return sentencex.segment


def _split(paragraph, language, segment):
    """Yields the sentences of a text, which make it up."""
    start = 0
    for sentence in segment(language, _OTHER_SPACES.sub(" ", paragraph)):
        end = start + len(sentence)
        yield from _BEFORE_DIGITS.split(paragraph[start:end])
        start = end


def check_language(language: str) -> str:
    """Returns a language's code of two or three letters."""
    code = language.strip().lower().split("-")[0].split("_")[0]
    if not (code.isascii() and code.isalpha() and 2 <= len(code) <= 3):
        raise ValueError(
            f"--language={language} is no code of a language; wanted two or "
            "three letters of ISO 639, such as en, hi, ar or zh."
        )
    return code


def _join_lines(lines, args):
    """Yields paragraphs, and an empty text after each document."""
    wrapped: list[str] = []
    for line in lines:
        if normalization.is_blank(line):
            if wrapped:
                yield _unwrap(wrapped)
                wrapped = []
            yield ""
        elif args.join_lines:
            wrapped.append(line.strip())
        else:
            yield line
    if wrapped:
        yield _unwrap(wrapped)


def _unwrap(lines):
    """Joins lines by spaces, those of Chinese, Japanese or Thai without."""
    return _UNSPACED_BREAK.sub("", "\n".join(lines)).replace("\n", " ")

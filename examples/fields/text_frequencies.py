"""Count the words of many texts, and compare them with Zipf's law.

    pip install matplotlib
    python text_frequencies.py                               # on this machine
    GRIDENGINE_SCHEDULER=slurm python text_frequencies.py    # the same on a Slurm

The texts are the comments and docstrings of the standard library: over a million words that each
Python brings. Each call reads one file; `imap_unordered` takes files as they are found, and the
results are added up as they come, so that nothing large is held.
"""

import re
import sysconfig
import tokenize
from collections import Counter
from pathlib import Path

import matplotlib

import gridengine


def words_of(path):
    """Return how often each word occurs in the comments and strings of a Python file."""
    words = Counter()
    try:
        with tokenize.open(path) as file:
            for token in tokenize.generate_tokens(file.readline):
                if token.type in (tokenize.COMMENT, tokenize.STRING):
                    words.update(re.findall(r"[a-z]{2,}", token.string.lower()))
    except (SyntaxError, UnicodeDecodeError, tokenize.TokenError):  # tests of broken files
        return Counter()
    return words


def main():
    library = Path(sysconfig.get_path("stdlib"))
    files = (path for path in library.rglob("*.py") if "site-packages" not in path.parts)
    total = Counter()
    for words in gridengine.imap_unordered(words_of, files):
        total.update(words)
    print(f"{total.total():,} words, {len(total):,} of them different")
    print(", ".join(f"{word} {count:,}" for word, count in total.most_common(8)))

    matplotlib.use("Agg")
    from matplotlib import pyplot

    counts = [count for _, count in total.most_common()]
    ranks = range(1, len(counts) + 1)
    figure, axes = pyplot.subplots(figsize=(6, 4))
    axes.loglog(ranks, counts, label="counted")
    axes.loglog(ranks, [counts[0] / rank for rank in ranks], "--", label="Zipf's law")
    axes.set(xlabel="rank of the word", ylabel="how often")
    axes.legend()
    figure.savefig("frequencies.png")


if __name__ == "__main__":
    main()

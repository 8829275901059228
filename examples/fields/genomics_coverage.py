"""Align reads to a genome with an external aligner, and draw how often each place was read.

    apt-get install bowtie2 bowtie2-examples; pip install matplotlib
    python genomics_coverage.py                               # on this machine
    GRIDENGINE_SCHEDULER=slurm python genomics_coverage.py    # the same on a Slurm

The genome of the lambda phage and its reads come with bowtie2's examples. Each call aligns one part
of the reads. The parts and the index are files in the folder `lambda`, which the nodes must see.
"""

import gzip
import itertools
import subprocess
from collections import Counter
from pathlib import Path

import matplotlib

import gridengine

EXAMPLES = Path("/usr/share/doc/bowtie2/examples")
READS_PER_CALL = 500


def prepare(folder):
    """Build the index, divide the reads, and return the index and the files with the reads."""
    folder.mkdir(exist_ok=True)
    index = folder / "index"
    genome = EXAMPLES / "reference" / "lambda_virus.fa.gz"
    subprocess.run(["bowtie2-build", "-q", genome, index], check=True)
    parts = []
    with gzip.open(EXAMPLES / "reads" / "reads_1.fq.gz", "rt") as lines:
        while text := "".join(itertools.islice(lines, 4 * READS_PER_CALL)):
            parts.append(folder / f"reads-{len(parts):02}.fq")
            parts[-1].write_text(text)
    return index, parts


def main():
    index, parts = prepare(Path("lambda").absolute())
    align = gridengine.Program(["bowtie2", "--no-hd", "-x", str(index), "-U"])
    depth, total, aligned = Counter(), 0, 0
    for done in gridengine.imap_unordered(align, map(str, parts)):
        for line in done.stdout.splitlines():
            _, flag, _, place, _, _, _, _, _, bases, *_ = line.split("\t")
            total += 1
            if not int(flag) & 4:
                aligned += 1
                depth.update(range(int(place), int(place) + len(bases)))
    print(f"{aligned:,} of {total:,} reads aligned, {depth.total() / max(depth):.1f}-fold coverage")

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 3), layout="tight")
    places = range(1, max(depth) + 1)
    axes.fill_between(places, [depth[place] for place in places], step="mid")
    axes.set(xlabel="position in the genome", ylabel="reads")
    figure.savefig("coverage.png")


if __name__ == "__main__":
    main()

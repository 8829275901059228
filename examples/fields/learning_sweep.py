"""A sweep over the options of a classifier that stops the bad ones early.

    pip install scikit-learn matplotlib
    python learning_sweep.py                               # on this machine
    GRIDENGINE_SCHEDULER=slurm python learning_sweep.py    # the same on a Slurm

The data are the 1,797 handwritten digits that scikit-learn brings. Successive halving: all options
are trained for a few epochs, the better half goes on for twice as many. A model travels back and
forth with its call. The run has a name, so a script that was killed goes on where it was, and
`gridengine report digits -o digits.html` draws what ran when.
"""

import itertools

import matplotlib
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

import gridengine

DIGITS = load_digits()
TRAIN, CHECK, TRAIN_LABELS, CHECK_LABELS = train_test_split(
    DIGITS.data / 16, DIGITS.target, test_size=0.3, random_state=0
)
OPTIONS = [
    {"alpha": alpha, "learning_rate_init": rate, "hidden_layer_sizes": (size,)}
    for alpha, rate, size in itertools.product([1e-4, 1e-2], [1e-4, 1e-3, 1e-2, 0.1], [16, 64])
]


def train(options, model, epochs):
    """Train a model, a new one if there is none; return it with its accuracy on other digits."""
    model = model or MLPClassifier(random_state=0, **options)
    for _ in range(epochs):
        model.partial_fit(TRAIN, TRAIN_LABELS, classes=DIGITS.target_names)
    return model, model.score(CHECK, CHECK_LABELS)


def main():
    left = [(options, None) for options in OPTIONS]
    curves = {str(options): [] for options in OPTIONS}
    epochs, trained = 5, 0
    while True:
        calls = [(options, model, epochs) for options, model in left]
        results = gridengine.starmap(train, calls, name=f"digits-{trained}")
        trained += epochs
        ranked = sorted(zip(left, results, strict=True), key=lambda one: -one[1][1])
        for (options, _), (_, score) in ranked:
            curves[str(options)].append((trained, score))
        print(f"after {trained} epochs, {len(left)} left: best {ranked[0][1][1]:.3f}")
        if len(ranked) == 1:
            break
        left = [(options, model) for (options, _), (model, _) in ranked[: len(ranked) // 2]]
        epochs *= 2
    print(f"chosen: {ranked[0][0][0]}")

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4))
    for curve in curves.values():
        axes.plot(*zip(*curve, strict=True), marker="o")
    axes.set(xlabel="epochs", ylabel="accuracy on the digits that are held back", xscale="log")
    figure.savefig("sweep.png")


if __name__ == "__main__":
    main()

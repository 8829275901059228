"""The bootstrap of a regression: how sure are we of each coefficient?

    pip install scikit-learn matplotlib
    python statistics_bootstrap.py                               # on this machine
    GRIDENGINE_SCHEDULER=slurm python statistics_bootstrap.py    # the same on a Slurm

The data are the 442 diabetes patients of Efron, Hastie, Johnstone and Tibshirani (2004). Each call
draws its own sample with `gridengine.rng()`. With `seed=1` the figures are the same each time,
whatever the number of workers.
"""

import matplotlib
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.linear_model import Ridge

import gridengine

SAMPLES = 2000
PATIENTS = load_diabetes()


def coefficients(number):
    """Return the coefficients that one sample of the patients gives."""
    chosen = gridengine.rng().integers(len(PATIENTS.target), size=len(PATIENTS.target))
    model = Ridge(alpha=0.1).fit(PATIENTS.data[chosen], PATIENTS.target[chosen])
    return model.coef_


def main():
    drawn = np.array(gridengine.map(coefficients, range(SAMPLES), seed=1))
    low, middle, high = np.percentile(drawn, [2.5, 50, 97.5], axis=0)
    for name, *interval in zip(PATIENTS.feature_names, low, middle, high, strict=True):
        print("{:>4}  {:8.1f} {:8.1f} {:8.1f}".format(name, *interval))

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4))
    axes.errorbar(PATIENTS.feature_names, middle, [middle - low, high - middle], fmt="o")
    axes.axhline(0, color="gray", linewidth=1)
    axes.set(ylabel="coefficient, 95 % interval")
    figure.savefig("bootstrap.png")


if __name__ == "__main__":
    main()

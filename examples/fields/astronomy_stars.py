"""Find the stars of an image tile by tile, and draw their brightness.

    pip install astropy scipy matplotlib
    python astronomy_stars.py                                  # on this machine
    GRIDENGINE_SCHEDULER=slurm python astronomy_stars.py       # the same on a Slurm

The image is the globular cluster M13 from the Digitized Sky Survey, which astropy brings with its
tests. Each call cuts one tile out of the image, which `share` sends to each worker once.
"""

import importlib.resources
import itertools

import matplotlib
import numpy as np
from astropy.io import fits
from astropy.stats import sigma_clipped_stats
from scipy import ndimage

import gridengine

TILE, MARGIN = 50, 5


def stars_of(image, corner):
    """Return (row, column, flux) of each star whose centre is in the tile at this corner."""
    row, column = (max(place - MARGIN, 0) for place in corner)
    tile = image[row : corner[0] + TILE + MARGIN, column : corner[1] + TILE + MARGIN]
    _, sky, noise = sigma_clipped_stats(tile)
    labels, count = ndimage.label(tile > sky + 5 * noise)
    numbers = range(1, count + 1)
    centres = ndimage.center_of_mass(tile - sky, labels, numbers)
    fluxes = ndimage.sum_labels(tile - sky, labels, numbers)
    found = [(y + row, x + column, flux) for (y, x), flux in zip(centres, fluxes, strict=True)]
    return [one for one in found if all(0 <= one[i] - corner[i] < TILE for i in (0, 1))]


def main():
    data = importlib.resources.files("astropy.io.fits.hdu.compressed.tests") / "data" / "m13.fits"
    image = fits.getdata(data).astype(float)
    rows, columns = (range(0, size, TILE) for size in image.shape)
    corners = list(itertools.product(rows, columns))
    shared = gridengine.share(image)
    tiles = gridengine.starmap(stars_of, [(shared, corner) for corner in corners])
    stars = np.array([star for tile in tiles for star in tile])
    print(f"{len(stars)} stars in {len(corners)} tiles")

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 5))
    left.imshow(image, cmap="gray", vmax=np.percentile(image, 99.5))
    left.scatter(stars[:, 1], stars[:, 0], s=12, facecolors="none", edgecolors="tab:red")
    right.hist(-2.5 * np.log10(stars[:, 2]), bins=30)
    right.set(xlabel="instrumental magnitude", ylabel="stars")
    figure.savefig("stars.png")


if __name__ == "__main__":
    main()

"""Make src/fedgauss/data/mnist_pca3.npz from the MNIST training set.

    python scripts/make_mnist_scores.py train-images-idx3-ubyte.gz train-labels-idx1-ubyte.gz
    python scripts/make_mnist_scores.py mnist_train.npz

IDX files may be gzipped or not; an npz file holds `images` (60000, 28, 28) and `labels` (60000,), both uint8.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from fedgauss.data import principal_scores, read_images, read_labels

OUT = Path(__file__).parents[1] / "src" / "fedgauss" / "data" / "mnist_pca3.npz"


def main() -> None:
    """Read, reduce, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images", help="training images, IDX or npz")
    parser.add_argument("labels", nargs="?", help="training labels; not needed when an npz file has both")
    parser.add_argument("--out", type=Path, default=OUT, help="where to write (default: the package)")
    arguments = parser.parse_args()
    images, labels = read_images(arguments.images), read_labels(arguments.labels or arguments.images)
    if images.shape != (60_000, 28, 28) or labels.shape != (60_000,):
        parser.error(f"the training set has 60,000 images of 28 by 28 pixels; got {images.shape} and {labels.shape}.")
    scores = principal_scores(images, 3).astype(np.float32)
    np.savez_compressed(arguments.out, scores=scores, labels=labels)
    print(f"{arguments.out}: {arguments.out.stat().st_size:,} bytes; variances {scores.var(axis=0).round(3)}")


if __name__ == "__main__":
    main()

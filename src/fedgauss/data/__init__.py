"""Data that come with the package, and readers of the files they were made from. NumPy alone."""

from fedgauss.data.files import read_images, read_labels
from fedgauss.data.scores import mnist_scores, principal_scores

__all__ = ["mnist_scores", "principal_scores", "read_images", "read_labels"]

"""A small convolutional network in PyTorch: local steps of a client, and accuracy."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from flower_cnn.data import CLASSES, Images

torch.set_num_threads(1)  # the clients of a simulation share the cores among them


def network(seed: int = 0) -> nn.Sequential:
    """Two convolutions and a linear layer: 11,274 parameters."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 8, kernel_size=5, stride=2, padding=2),
        nn.ReLU(),
        nn.Conv2d(8, 16, kernel_size=5, stride=2, padding=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * 7 * 7, CLASSES),
    )


def train(
    model: nn.Module, own: Images, steps: int, batch: int, optimiser: str, rate: float, rng: np.random.Generator
) -> None:
    """Some steps on mini-batches, with momentum or Adam."""
    kinds = {
        "momentum": lambda p: torch.optim.SGD(p, lr=rate, momentum=0.9),
        "adam": lambda p: torch.optim.Adam(p, rate),
    }
    if optimiser not in kinds:
        raise ValueError(f"optimiser must be one of {', '.join(kinds)}; got {optimiser!r}.")
    stepper = kinds[optimiser](model.parameters())
    for chosen in rng.integers(len(own.labels), size=(steps, batch)):
        some = own.at(chosen)
        stepper.zero_grad()
        functional.cross_entropy(model(_as_input(some)), torch.from_numpy(some.labels)).backward()
        stepper.step()


@torch.inference_mode()
def accuracy(model: nn.Module, images: Images) -> float:
    """The share of images whose label has the highest score."""
    return float(np.mean(model(_as_input(images)).argmax(dim=1).numpy() == images.labels))


def _as_input(images: Images) -> torch.Tensor:
    return torch.from_numpy(images.pixels[:, None].astype(np.float32) / 255)

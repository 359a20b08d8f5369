"""The same regression in PyTorch: an ordinary module and optimiser, and moments by automatic differentiation."""

from __future__ import annotations

import numpy as np
import torch
from torch.func import functional_call, grad, hessian, vmap

from flower_watch.data import Floats, Rows
from flower_watch.numpy_model import Batches


def train(weight: Floats, data: Rows, batches: Batches, rate: float) -> Floats:
    """`weight` (1, d) after a step of SGD for each batch."""
    model, x, y = _model(weight), torch.from_numpy(data.x), torch.from_numpy(data.y)
    optimiser = torch.optim.SGD(model.parameters(), lr=rate)
    for chosen in batches:
        optimiser.zero_grad()
        _loss(model(x[chosen]), y[chosen]).backward()
        optimiser.step()
    return model.weight.detach().numpy().astype(np.float64)


def moments(weight: Floats, data: Rows, batches: Batches) -> tuple[Floats, Floats]:
    """Gradients of the batches at `weight`, (m, d), and the Hessian, (d, d)."""
    model, x, y = _model(weight), torch.from_numpy(data.x), torch.from_numpy(data.y)

    def loss(parameters: torch.Tensor, features: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return _loss(functional_call(model, {"weight": parameters}, (features,)), targets)

    parameters = model.weight.detach()
    gradients = vmap(grad(loss), in_dims=(None, 0, 0))(parameters, x[batches], y[batches])
    curvature = hessian(loss)(parameters, x, y)
    dim = parameters.numel()
    return gradients.reshape(len(batches), dim).numpy(), curvature.reshape(dim, dim).numpy()


def _model(weight: Floats) -> torch.nn.Linear:
    model = torch.nn.Linear(weight.shape[1], 1, bias=False, dtype=torch.float64)
    model.load_state_dict({"weight": torch.from_numpy(weight.copy())})
    return model


def _loss(predicted: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return 0.5 * torch.mean((predicted[..., 0] - targets) ** 2)

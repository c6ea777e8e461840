"""The few names by which shared code reaches PyTorch."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

if TYPE_CHECKING:
    from .contract import BaseTask

Tensor = torch.Tensor
Model = nn.Module
Device = torch.device | str


def to_tensors(batch: Mapping[str, NDArray[Any]], device: Device = "cpu") -> dict[str, Tensor]:
    """Arrays [B, ...] as tensors of the same dtype on the device."""
    return {name: torch.from_numpy(np.ascontiguousarray(array)).to(device) for name, array in batch.items()}


def to_numpy(tensor: Tensor) -> NDArray[Any]:
    """A copy on the CPU, outside the graph."""
    array: NDArray[Any] = tensor.detach().cpu().numpy()
    return array


@contextmanager
def inference(model: Model) -> Iterator[None]:
    """No gradients, and layers such as dropout switched off."""
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        model.train(was_training)


def place(model: Model, device: Device) -> Model:
    return model.to(device)


def without_gradient(model: Model, task: "BaseTask", batch: Mapping[str, NDArray[Any]]) -> list[str]:
    """The names of the trainable weights that the loss, in training, does not depend on; leaves the model as it was."""
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    weights = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    device = next(model.parameters()).device
    tensors = to_tensors(batch, device)
    total = task.compute_loss(run_model(model, tensors), tensors).total
    gradients: Sequence[Tensor | None] = [None] * len(weights)
    if total.requires_grad:
        gradients = torch.autograd.grad(total, list(weights.values()), allow_unused=True)
    for name, buffer in model.named_buffers():
        buffer.copy_(buffers[name])
    return [name for name, gradient in zip(weights, gradients, strict=True) if gradient is None]


def trainable_weights(model: Model) -> dict[str, NDArray[Any]]:
    return {name: to_numpy(weight) for name, weight in model.named_parameters() if weight.requires_grad}


def run_model(model: Model, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    outputs: dict[str, Tensor] = model(batch)
    return outputs

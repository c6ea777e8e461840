"""The few names by which shared code reaches PyTorch."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

Tensor = torch.Tensor
Model = nn.Module


def to_tensors(batch: Mapping[str, NDArray[Any]], device: torch.device | str = "cpu") -> dict[str, Tensor]:
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


def run_model(model: Model, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    outputs: dict[str, Tensor] = model(batch)
    return outputs

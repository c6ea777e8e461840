"""What Ray's launchers must know of PyTorch."""

from collections.abc import Callable
from typing import Any

LAUNCHER = "launch/ddp.sh"  # of several processes on one machine


def count_gpus() -> int:
    import torch

    return torch.cuda.device_count()


def build_trainer(loop: Callable[[dict[str, Any]], None], **options: Any) -> Any:
    """Runs the loop in every worker, to which Ray gives a rank and a process group."""
    from ray.train.torch import TorchTrainer

    return TorchTrainer(loop, **options)

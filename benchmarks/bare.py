"""The floor: a training loop with nothing in it that training does not need, alone or under torchrun.

Same model, data, augmentation and optimizer as the project's loop. Runs in a project's environment.
"""

import argparse
import statistics
import time
from itertools import pairwise

import numpy as np
import torch
import torch.distributed as dist

# Before a group exists: its default arguments would keep the group, and gloo's threads, alive.
import torch.distributed.nn.functional
from my_model.config import OptimizerSettings
from my_model.contract import ArrayExamples
from my_model.data import build_datasets
from my_model.model import build_model
from my_model.settings import DataSettings, ModelSettings
from my_model.train import build_optimizer
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel


class BareLoop:
    """Train on the digits; each of `world_size` processes takes its share of a batch."""

    def __init__(self, width: int, batch_size: int, rank: int = 0, world_size: int = 1) -> None:
        datasets = build_datasets(DataSettings())
        assert isinstance(datasets.train, ArrayExamples) and datasets.train.augment
        self.images, self.labels = datasets.train.arrays["image"], datasets.train.arrays["label"]
        self.augment = datasets.train.augment
        self.generator = np.random.default_rng(0)
        self.batch_size, self.share, self.first = batch_size, batch_size // world_size, rank * batch_size // world_size
        self.steps = len(self.labels) // batch_size
        torch.manual_seed(0)
        model = build_model(ModelSettings(width=width), datasets.facts)
        self.optimizer = build_optimizer(OptimizerSettings(), model)
        self.model = model if world_size == 1 else DistributedDataParallel(model)

    def train_one_epoch(self) -> float:
        order, total = self.generator.permutation(len(self.labels)), 0.0
        for step in range(self.steps):
            start = step * self.batch_size + self.first
            total += self.train_step(order[start : start + self.share])
        return total

    def train_step(self, rows: np.ndarray) -> float:
        seeds = self.generator.integers(2**64, size=len(rows), dtype=np.uint64)
        arrays = self.augment({"image": self.images[rows], "label": self.labels[rows]}, seeds)
        batch = {name: torch.from_numpy(array) for name, array in arrays.items()}
        self.optimizer.zero_grad()
        loss = cross_entropy(self.model(batch)["logits"], batch["label"])
        loss.backward()
        self.optimizer.step()
        return float(loss.item())


def main() -> None:
    """Print the median seconds a step, over groups of `--group` steps within each epoch."""
    parser = argparse.ArgumentParser()
    for name in ("width", "batch-size", "epochs", "group"):
        parser.add_argument(f"--{name}", type=int, required=True)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    loop = BareLoop(args.width, args.batch_size, dist.get_rank(), dist.get_world_size())
    times: list[float] = []
    for _ in range(args.epochs):
        order = loop.generator.permutation(len(loop.labels))
        for step in range(loop.steps):
            if step % args.group == 0:
                times.append(time.perf_counter())
            start = step * loop.batch_size + loop.first
            loop.train_step(order[start : start + loop.share])
    if dist.get_rank() == 0:
        print(statistics.median(b - a for a, b in pairwise(times)) / args.group)
    del loop
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

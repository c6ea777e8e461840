"""The learning rate of each step."""

import math

from .config import OptimizerSettings


def learning_rate(settings: OptimizerSettings, step: int, total_steps: int) -> float:
    """Rise linearly over the warm-up, then stay or fall to zero at `total_steps`; steps count from 0."""
    if step < settings.warmup_steps:
        return settings.learning_rate * (step + 1) / settings.warmup_steps
    if settings.schedule == "constant":
        return settings.learning_rate
    progress = min(1.0, (step - settings.warmup_steps) / max(1, total_steps - settings.warmup_steps))
    factor = 1 - progress if settings.schedule == "linear" else (1 + math.cos(math.pi * progress)) / 2
    return settings.learning_rate * factor

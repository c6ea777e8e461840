"""Where a run is: all that changes while it trains, beside the weights and the optimizer."""

from dataclasses import dataclass


@dataclass
class TrainState:
    """`epoch` and `step` count what is done; the window is what the next line of training metrics averages."""

    epoch: int = 0
    step_in_epoch: int = 0
    step: int = 0
    best: float | None = None
    epochs_since_best: int = 0
    window_total: float = 0.0
    window_count: float = 0.0

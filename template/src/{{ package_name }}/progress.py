"""Where a run is, and what a user and the trackers see of it."""

import time
from dataclasses import dataclass, field
from typing import Any

from tqdm import tqdm

from .config import TrackingSettings
from .distributed import Runtime
from .run import Run
from .tracking import Metrics, RunMetrics


@dataclass
class TrainState:
    """All that changes while a run trains, beside the weights and the optimizer.

    `epoch` and `step` count what is done; the window is what the next line of training metrics averages.
    """

    epoch: int = 0
    step_in_epoch: int = 0
    step: int = 0
    best: float | None = None
    epochs_since_best: int = 0
    window_total: float = 0.0
    window_count: float = 0.0


def start_metrics(runtime: Runtime, run: Run, settings: TrackingSettings, step: int) -> Metrics:
    """Those of the first process, with its trackers; the others log nothing. Where one does not start, all fail."""
    metrics = [Metrics()]
    runtime.on_main(lambda: metrics.insert(0, RunMetrics(run, settings, step)))
    return metrics[0]


@dataclass
class Progress:
    """Averages the loss between two lines of metrics, and shows the latest figures."""

    runtime: Runtime
    metrics: Metrics
    examples: int = 0
    since: float = 0.0
    latest: dict[str, str] = field(default_factory=dict)

    def bar(self, state: TrainState, steps: int) -> Any:
        """The progress bar of an epoch; the clock of the speed starts here, after evaluation and checkpoints."""
        self.since = time.perf_counter()
        hidden = None if self.runtime.is_main else True  # None: shown on a terminal only
        name = f"epoch {state.epoch + 1}"
        return tqdm(total=steps, initial=state.step_in_epoch, desc=name, unit="step", leave=False, disable=hidden)

    def log_train(self, state: TrainState, learning_rate: float) -> None:
        now = time.perf_counter()
        loss, speed = state.window_total / state.window_count, self.examples / max(now - self.since, 1e-9)
        metrics = {"train/loss": loss, "train/learning_rate": learning_rate, "train/examples_per_second": speed}
        self.metrics.log(metrics, state.step, state.epoch)
        self.latest |= {"train/loss": f"{loss:.4f}", "examples/s": f"{speed:,.0f}"}
        state.window_total = state.window_count = 0.0
        self.since, self.examples = now, 0

    def log_val(self, state: TrainState, metrics: dict[str, float]) -> None:
        self.metrics.log({f"val/{name}": value for name, value in metrics.items()}, state.step, state.epoch)
        self.latest |= {f"val/{name}": f"{value:.4f}" for name, value in metrics.items()}

    def show_epoch(self, state: TrainState, max_epochs: int) -> None:
        if self.runtime.is_main:
            tqdm.write(f"epoch {state.epoch}/{max_epochs}  step {state.step}  {self}")

    def __str__(self) -> str:
        return "  ".join(f"{name} {value}" for name, value in self.latest.items())

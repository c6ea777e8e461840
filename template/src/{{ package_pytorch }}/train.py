"""Train a model: one screen a function, from `main` down to `train_step`."""

import argparse
import math
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import yaml
from tqdm import tqdm

from . import checkpoint, distributed
from .backend import Model, Tensor, to_tensors
from .check import build, build_datasets
from .checkpoint import TrainState
from .config import Config, OptimizerSettings, load_config, write_yaml
from .contract import BaseTask, Batch, Datasets
from .distributed import Runtime
from .errors import UserError
from .evaluate import compute_metrics, compute_sums
from .loading import data_version, epoch_order, mix, read_batches
from .run import Checkpoint, Run, describe_environment, find_run, new_run, write_json
from .schedule import learning_rate
from .tracking import NullTracker, Tracker, build_tracker


class Interrupted(Exception):
    """Ctrl-C or SIGTERM arrived, and the checkpoint is written."""


@dataclass
class Loop:
    """All that one step needs."""

    config: Config
    runtime: Runtime
    run: Run
    datasets: Datasets
    task: BaseTask
    model: Model
    train_model: Model  # the same weights, compiled and wrapped for several processes
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler
    state: TrainState
    tracker: Tracker
    total_steps: int
    window_start: float = field(default_factory=time.perf_counter)
    window_examples: int = 0
    latest: dict[str, float] = field(default_factory=dict)

    def save(self, *names: Checkpoint) -> None:
        def write() -> None:
            for name in names:
                path = self.run.checkpoint(name)
                checkpoint.save(path, self.state, self.datasets.facts, self.model, self.optimizer, self.scaler)

        self.runtime.on_main(write)

    @property
    def is_done(self) -> bool:
        trainer, state = self.config.trainer, self.state
        stopped_early = trainer.patience is not None and state.epochs_since_best >= trainer.patience
        return state.epoch >= trainer.max_epochs or state.step >= self.total_steps or stopped_early


def main(args: argparse.Namespace) -> None:
    resumed = None if args.resume is None else find_run(args.resume if args.resume != Path() else None)
    experiment = args.experiment or Path("configs/experiment/baseline.yaml")
    config = load_config(resumed.config if resumed else experiment, args.flags, args)
    if args.dry_run:
        print(yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False), end="")
        return
    train(config, resumed, args.run_name)


def train(config: Config, resumed: Run | None = None, run_name: str | None = None) -> Run:
    """Train from the start, or go on with a run; returns the run when it is finished."""
    with distributed.start(config.trainer) as runtime:
        run = runtime.on_main(lambda: open_run(config, resumed, run_name))
        with recorded(run, runtime):
            loop = build_loop(config, runtime, run)
            if runtime.is_main:
                print(f"run {run.path} on {runtime.device} ({runtime.precision}, {runtime.world_size} processes)")
            while not loop.is_done:
                train_one_epoch(loop)
                finish_epoch(loop)
            loop.tracker.finish("finished")
    if runtime.is_main:
        best = "" if loop.state.best is None else f", best val/{loop.task.monitor.metric} {loop.state.best:.4f}"
        print(f"finished after {loop.state.step} steps{best}\nnext: python -m {__package__} evaluate {run.path}")
    return run


def open_run(config: Config, resumed: Run | None, run_name: str | None) -> Run:
    """The run directory with its config.yaml; a run that exists goes on only with the settings it began with."""
    run = resumed or new_run(config.runs_dir, config.name, run_name)
    if run.config.is_file():
        before = load_config(run.config)
        for key in ("seed", "data", "model", "task"):
            if getattr(before, key) != getattr(config, key):
                raise UserError(f"{key}: cannot change while {run.path} goes on; start a new run instead")
        if before.trainer.global_batch_size != config.trainer.global_batch_size:
            raise UserError(f"trainer.global_batch_size: cannot change while {run.path} goes on; start a new run")
        error = run.read_status().get("error")
        if error and int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0:
            raise UserError(f"not tried again: {error}", exit_code=1)
    write_yaml(run.config, config)
    return run


def build_loop(config: Config, runtime: Runtime, run: Run) -> Loop:
    """Data, model, optimizer and trackers; the state of the last checkpoint where there is one."""
    trainer = config.trainer
    if trainer.global_batch_size % (runtime.world_size * trainer.accumulation_steps):
        raise UserError(
            f"trainer.global_batch_size: {trainer.global_batch_size} must divide by {runtime.world_size} processes"
            f" x {trainer.accumulation_steps} accumulation steps"
        )
    datasets = build_datasets(config.data)
    torch.manual_seed(config.seed)
    model, task = build(config, datasets)
    model = runtime.place(model)
    steps = len(epoch_order(datasets, config.seed, 0)) // trainer.global_batch_size
    if steps == 0:
        raise UserError(f"trainer.global_batch_size: {trainer.global_batch_size} is more than one epoch of examples")
    total_steps = min(trainer.max_epochs * steps, trainer.max_steps or math.inf)
    optimizer = build_optimizer(config.optimizer, model, runtime.device)
    scaler = torch.amp.GradScaler(runtime.device.type, enabled=runtime.precision == "fp16")
    state = restore(run, model, optimizer, scaler, runtime.device) if run.checkpoint("last").is_file() else TrainState()
    train_model = runtime.wrap_model(model, trainer.compile)
    tracker: Tracker = NullTracker()
    if runtime.is_main:
        hardware = runtime.describe()
        write_json(run.path / "environment.json", describe_environment(hardware, data_version(datasets)))
        tracker = build_tracker(config.tracking.trackers, run.path, config.model_dump(mode="json"), state.step)
    return Loop(
        config, runtime, run, datasets, task, model, train_model, optimizer, scaler, state, tracker, int(total_steps)
    )


def restore(
    run: Run, model: Model, optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler, device: torch.device
) -> TrainState:
    path = run.checkpoint("last")
    content = checkpoint.load(path)
    checkpoint.restore_weights(path, model, content)
    optimizer.load_state_dict(content["optimizer"])
    scaler.load_state_dict(content["scaler"])
    return TrainState(**content["state"])


def build_optimizer(settings: OptimizerSettings, model: Model, device: torch.device) -> torch.optim.Optimizer:
    """AdamW or SGD, in the fused form where PyTorch has one."""
    options: dict[str, Any] = {"lr": settings.learning_rate, "weight_decay": settings.weight_decay}
    options["fused"] = device.type in ("cpu", "cuda", "mps")
    if settings.name == "sgd":
        return torch.optim.SGD(model.parameters(), momentum=settings.momentum, **options)
    return torch.optim.AdamW(model.parameters(), **options)


def train_one_epoch(loop: Loop) -> None:
    """Train on what is left of the epoch; log and save on the way."""
    trainer, state, size = loop.config.trainer, loop.state, loop.config.trainer.global_batch_size
    order = epoch_order(loop.datasets, loop.config.seed, state.epoch)
    steps = len(order) // size
    with progress_bar(loop, steps) as bar, profiler(loop) as profile:
        for batches in read_steps(loop, order, range(state.step_in_epoch, steps)):
            loss = train_step(loop, batches)
            profile()
            bar.update()
            if state.step % trainer.log_every == 0:
                log_window(loop)
                bar.set_postfix({"loss": f"{loss:.4f}", **loop.latest}, refresh=False)
            if loop.runtime.stop_requested:
                loop.save("last")
                raise Interrupted
            if state.step >= loop.total_steps:
                break
            if trainer.checkpoint_every and state.step % trainer.checkpoint_every == 0 and state.step_in_epoch < steps:
                loop.save("last")


def train_step(loop: Loop, batches: Sequence[Batch]) -> float:
    """One update from this rank's part of a global batch, in one or more pieces; returns the global mean loss.

    Gradients are of the mean over the global batch: the sum of the losses divided by the sum of the counts.
    """
    runtime, state, size = loop.runtime, loop.state, loop.config.trainer.global_batch_size
    torch.manual_seed(mix(loop.config.seed, state.step, runtime.rank))
    for group in loop.optimizer.param_groups:
        group["lr"] = learning_rate(loop.config.optimizer, state.step, loop.total_steps)
    loop.optimizer.zero_grad()
    local_total, local_count = 0.0, 0.0
    for piece, arrays in enumerate(batches):
        batch = to_tensors(arrays, runtime.device)
        with runtime.accumulate(loop.train_model, last=piece == len(batches) - 1):
            with runtime.autocast():
                loss = loop.task.compute_loss(loop.train_model(batch), batch)
            scaled: Tensor = loop.scaler.scale(loss.total * (runtime.world_size / size))
            scaled.backward()  # type: ignore[no-untyped-call]
        local_total, local_count = local_total + loss.total.item(), local_count + float(loss.count)
    total, count, stop = runtime.sum_over_ranks([local_total, local_count, float(runtime.stop_requested)])
    runtime.stop_requested = stop > 0
    if not math.isfinite(total):
        raise UserError(
            f"step {state.step + 1}: the loss is {total}; lower optimizer.learning_rate, set trainer.max_grad_norm,"
            " or use trainer.precision fp32",
            exit_code=1,
        )
    update(loop, size / count)
    state.step, state.step_in_epoch = state.step + 1, state.step_in_epoch + 1
    state.window_total, state.window_count = state.window_total + total, state.window_count + count
    loop.window_examples += size
    return total / count


def update(loop: Loop, factor: float) -> None:
    """Scale the gradients where the batch counted more or less than its examples, clip, and step."""
    loop.scaler.unscale_(loop.optimizer)
    gradients = [p.grad for p in loop.model.parameters() if p.grad is not None]
    if factor != 1:
        torch._foreach_mul_(gradients, factor)
    if loop.config.trainer.max_grad_norm is not None:
        torch.nn.utils.clip_grad_norm_(loop.model.parameters(), loop.config.trainer.max_grad_norm)
    loop.scaler.step(loop.optimizer)
    loop.scaler.update()


def read_steps(loop: Loop, order: Any, steps: range) -> Iterator[list[Batch]]:
    """This rank's batches, cut into `accumulation_steps` pieces a step."""
    trainer, runtime = loop.config.trainer, loop.runtime
    share = trainer.global_batch_size // runtime.world_size
    piece = share // trainer.accumulation_steps
    starts = [(0 if trainer.overfit_one_batch else step) * trainer.global_batch_size for step in steps]
    parts = [
        order[start + runtime.rank * share + offset :][:piece] for start in starts for offset in range(0, share, piece)
    ]
    seeds = None if trainer.overfit_one_batch else (loop.config.seed, loop.state.epoch)
    pieces = read_batches(loop.datasets.train, parts, seeds, trainer.read_workers)
    for _ in steps:
        yield [next(pieces) for _ in range(trainer.accumulation_steps)]


def finish_epoch(loop: Loop) -> None:
    """Evaluate, log, and save: `best` when the monitored metric improved, and `last` always."""
    state, monitor = loop.state, loop.task.monitor
    if state.window_count:
        log_window(loop)
    sums = compute_sums(
        loop.runtime,
        loop.task,
        loop.model,
        loop.datasets.val,
        loop.config.trainer.global_batch_size,
        loop.config.trainer.read_workers,
    )
    metrics = compute_metrics(loop.task, sums)
    if not math.isfinite(metrics["loss"]):
        raise UserError(f"step {state.step}: the val loss is {metrics['loss']}; lower optimizer.learning_rate", 1)
    loop.tracker.log_metrics({f"val/{name}": value for name, value in metrics.items()}, state.step, state.epoch)
    loop.latest |= {f"val/{monitor.metric}": metrics[monitor.metric]}
    better = monitor.improves(metrics[monitor.metric], state.best)
    state.epochs_since_best = 0 if better else state.epochs_since_best + 1
    state.best = metrics[monitor.metric] if better else state.best
    state.epoch, state.step_in_epoch = state.epoch + 1, 0
    loop.save(*(["best", "last"] if better else ["last"]))
    if loop.runtime.is_main:
        shown = "  ".join(f"{name} {value:.4f}" for name, value in loop.latest.items())
        tqdm.write(f"epoch {state.epoch}/{loop.config.trainer.max_epochs}  step {state.step}  {shown}")


def log_window(loop: Loop) -> None:
    """Log the mean loss since the last line, the learning rate and the speed."""
    state, now = loop.state, time.perf_counter()
    loop.latest["train/loss"] = state.window_total / state.window_count
    loop.latest["train/examples_per_second"] = loop.window_examples / max(now - loop.window_start, 1e-9)
    rate = {"train/learning_rate": float(loop.optimizer.param_groups[0]["lr"])}
    train_metrics = {name: value for name, value in loop.latest.items() if name.startswith("train/")}
    loop.tracker.log_metrics(train_metrics | rate, state.step, state.epoch)
    state.window_total = state.window_count = 0.0
    loop.window_start, loop.window_examples = now, 0


def progress_bar(loop: Loop, steps: int) -> Any:
    state = loop.state
    hidden = None if loop.runtime.is_main else True  # None: shown on a terminal only
    name = f"epoch {state.epoch + 1}"
    return tqdm(total=steps, initial=state.step_in_epoch, desc=name, unit="step", leave=False, disable=hidden)


@contextmanager
def profiler(loop: Loop) -> Iterator[Any]:
    """Trace the first epoch's first steps where trainer.profile is set."""
    if not loop.config.trainer.profile or loop.state.step > 0 or not loop.runtime.is_main:
        yield lambda: None
        return
    trace = loop.run.path / "trace.json"
    with torch.profiler.profile(
        schedule=torch.profiler.schedule(wait=1, warmup=2, active=5, repeat=1),
        on_trace_ready=lambda profile: profile.export_chrome_trace(str(trace)),
    ) as profile:
        yield profile.step
    print(profile.key_averages().table(sort_by="self_cpu_time_total", row_limit=10))
    print(f"trace: {trace} (open it at chrome://tracing or ui.perfetto.dev)")


@contextmanager
def recorded(run: Run, runtime: Runtime) -> Iterator[None]:
    """Keep status.json true, however training ends."""

    def write(status: Any, **more: object) -> None:
        if runtime.is_main:
            run.write_status(status, **more)

    write("running")
    try:
        yield
    except (Interrupted, KeyboardInterrupt) as stop:
        write("interrupted")
        if isinstance(stop, KeyboardInterrupt):
            raise
        hint = f"saved; go on with: python -m {__package__} train --resume {run.path}"
        raise UserError(f"interrupted: {hint}", exit_code=130) from None
    except UserError as error:
        write("failed", error=str(error))
        raise
    except BaseException:
        write("failed")
        raise
    write("finished")

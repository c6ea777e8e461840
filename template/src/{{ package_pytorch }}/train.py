"""Train a model: from `main` down to `train_step`, one screen a function."""

import argparse
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from . import checkpoint, data, distributed
from .backend import Model, Tensor, to_tensors
from .check import build
from .config import Config, OptimizerSettings, check_batch
from .contract import BaseTask, Batch, Datasets
from .distributed import EvalStep, Runtime
from .errors import UserError
from .evaluate import compute_metrics, compute_sums
from .loading import batch_parts, data_version, epoch_order, read_batches
from .progress import Progress, TrainState, start_metrics
from .run import Checkpoint, Run, StopRequested, open_run, record_start, recorded, stop_on_signal
from .schedule import learning_rate
from .seeds import mix


@dataclass
class Loop:
    """All that a step needs."""

    config: Config
    runtime: Runtime
    run: Run
    datasets: Datasets
    task: BaseTask
    model: Model
    train_model: Model  # the same weights, compiled and wrapped for several processes
    eval_step: EvalStep
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler
    state: TrainState
    total_steps: int
    progress: Progress
    must_stop: bool = False  # on every rank after the same step, whenever a signal reached which of them

    @property
    def stopped_early(self) -> bool:
        patience = self.config.trainer.patience
        return patience is not None and self.state.epochs_since_best >= patience

    @property
    def is_done(self) -> bool:
        used_up = self.state.epoch >= self.config.trainer.max_epochs or self.state.step >= self.total_steps
        return used_up or self.stopped_early

    def save(self, name: Checkpoint) -> None:
        path, facts = self.run.checkpoint(name), self.datasets.facts
        checkpoint.save(self.runtime, path, self.state, facts, self.model, self.optimizer, self.scaler)


def main(args: argparse.Namespace) -> None:
    train(args.config, args.run, args.run_name)


def train(config: Config, resumed: Run | None = None, run_name: str | None = None) -> Run:
    """Train from the start, or go on with a run; returns the run when it is finished."""
    with distributed.start(config.trainer) as runtime:
        run = runtime.on_main(lambda: open_run(config, resumed, run_name))
        train_all_epochs(config, runtime, run)
    return run


def train_all_epochs(config: Config, runtime: Runtime, run: Run) -> None:
    """All that is left of the run."""
    loop = build_loop(config, runtime, run)
    say = print if runtime.is_main else lambda *_: None
    start = f", from step {loop.state.step}" if loop.state.step else ""
    say(f"run {run.path} on {runtime.device}, {runtime.precision}, world size {runtime.world_size}{start}")
    if loop.is_done:
        say("nothing is left to do; raise trainer.max_epochs, trainer.max_steps or trainer.patience")
    with recorded(run, runtime.is_main, loop.progress.metrics.finish), stop_on_signal(runtime):
        while not loop.is_done:
            train_one_epoch(loop)
            finish_epoch(loop)
    if loop.stopped_early:
        say(f"stopped early: no better model in {config.trainer.patience} epochs (trainer.patience)")
    best = "" if loop.state.best is None else f", best val/{loop.task.monitor.metric} {loop.state.best:.4f}"
    say(f"finished after {loop.state.step} steps{best}\nnext: python -m {__package__} evaluate {run.path}")


def build_loop(config: Config, runtime: Runtime, run: Run) -> Loop:
    """Data, model, optimizer and trackers, in the state of the last checkpoint where there is one."""
    trainer, size = config.trainer, config.trainer.global_batch_size
    check_batch(config, runtime.world_size)
    datasets = data.build_datasets(config.data)
    runtime.seed(config.seed)
    model, task = build(config, datasets, runtime.device)
    train_model = runtime.wrap_model(model, trainer.compile)
    steps = len(epoch_order(datasets, config.seed, 0)) // size
    if steps == 0:
        raise UserError(f"trainer.global_batch_size: {size} is more than the {len(datasets.train)} training examples")
    total_steps = min(trainer.max_epochs * steps, trainer.max_steps or trainer.max_epochs * steps)
    optimizer = build_optimizer(config.optimizer, model)
    scaler = torch.amp.GradScaler(runtime.device.type, enabled=runtime.precision == "fp16")
    state = TrainState()
    if run.checkpoint("last").is_file():
        state = checkpoint.restore(run.checkpoint("last"), model, optimizer, scaler)
    version = runtime.agree(data_version(datasets), "data.py: build_datasets must give every process the same data")
    runtime.on_main(lambda: record_start(run, config, runtime.describe(), version, task.monitor._asdict()))
    metrics = start_metrics(runtime, run, config.tracking, state.step)
    return Loop(
        config,
        runtime,
        run,
        datasets,
        task,
        model,
        train_model,
        runtime.build_eval_step(task, model),
        optimizer,
        scaler,
        state,
        total_steps,
        Progress(runtime, metrics),
    )


def build_optimizer(settings: OptimizerSettings, model: Model) -> torch.optim.Optimizer:
    """AdamW or SGD, in PyTorch's fused form where there is one; biases and the scales of norms do not decay."""
    cut = {isinstance(weight, DTensor) for weight in model.parameters()}
    form = {"fused": True} if cut == {False} or (settings.name == "adamw" and len(cut) == 1) else {"foreach": False}
    weights = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": weights, "weight_decay": settings.weight_decay}, {"params": others, "weight_decay": 0.0}]
    if settings.name == "sgd":
        return torch.optim.SGD(groups, settings.learning_rate, momentum=settings.momentum, **form)
    return torch.optim.AdamW(groups, settings.learning_rate, betas=settings.betas, **form)


def train_one_epoch(loop: Loop) -> None:
    """Train on what is left of the epoch; log and save on the way."""
    trainer, state = loop.config.trainer, loop.state
    order = epoch_order(loop.datasets, loop.config.seed, state.epoch)
    steps = len(order) // trainer.global_batch_size
    with loop.progress.bar(state, steps) as bar, profiler(loop) as profile_step:
        for batches in read_steps(loop, order, range(state.step_in_epoch, steps)):
            train_step(loop, batches)
            profile_step()
            bar.update()
            if state.step % trainer.log_every == 0:
                loop.progress.log_train(state, loop.optimizer.param_groups[0]["lr"])
                bar.set_postfix_str(str(loop.progress), refresh=False)
            if loop.must_stop:
                loop.save("last")
                raise StopRequested
            if state.step >= loop.total_steps:
                break
            if trainer.checkpoint_every and state.step % trainer.checkpoint_every == 0 and state.step_in_epoch < steps:
                loop.save("last")
    if state.step_in_epoch == steps:
        state.epoch, state.step_in_epoch = state.epoch + 1, 0


def read_steps(loop: Loop, order: Any, steps: range) -> Iterator[list[Batch]]:
    """This rank's share of each global batch, in `accumulation_steps` pieces."""
    trainer, runtime, pieces = loop.config.trainer, loop.runtime, loop.config.trainer.accumulation_steps
    chosen, times = (range(1), len(steps)) if trainer.overfit_one_batch else (steps, 1)
    parts = batch_parts(order, chosen, trainer.global_batch_size, pieces, runtime.data_rank, runtime.data_size)
    seeds = None if trainer.overfit_one_batch else (loop.config.seed, loop.state.epoch)
    batches = read_batches(loop.datasets.train, parts * times, seeds, trainer.read_workers)
    while step := list(islice(batches, pieces)):
        yield step


def train_step(loop: Loop, batches: Sequence[Batch]) -> None:
    """One update. The gradient is that of the mean over the global batch, whatever the processes and pieces."""
    runtime, state, size = loop.runtime, loop.state, loop.config.trainer.global_batch_size
    runtime.seed(mix(loop.config.seed, state.step, runtime.data_rank))
    loop.optimizer.zero_grad()
    local_total = local_count = 0.0
    for piece, arrays in enumerate(batches, 1):
        batch = to_tensors(arrays, runtime.device)
        with runtime.accumulate(loop.train_model, last=piece == len(batches)):
            with runtime.autocast():
                loss = loop.task.compute_loss(loop.train_model(batch), batch)
            scaled: Tensor = loop.scaler.scale(loss.total * (runtime.data_size / size))
            scaled.backward()  # type: ignore[no-untyped-call]
        local_total, local_count = local_total + loss.total.item(), local_count + float(loss.count)
    runtime.reduce_gradients(loop.model)
    total, count, stop = runtime.sum_over_ranks([local_total, local_count, float(runtime.stop_requested)])
    loop.must_stop = stop > 0
    if not math.isfinite(total):
        settings = "optimizer.learning_rate (lower), trainer.max_grad_norm (set) or trainer.precision (fp32)"
        raise UserError(f"step {state.step + 1}: the loss is {total}; look at {settings}", exit_code=1)
    update(loop, size / count)
    state.step, state.step_in_epoch = state.step + 1, state.step_in_epoch + 1
    state.window_total, state.window_count = state.window_total + total, state.window_count + count
    loop.progress.examples += size


def update(loop: Loop, factor: float) -> None:
    """Scale the gradients where a batch counts more or less than its examples (tokens, weights), clip, and step."""
    loop.scaler.unscale_(loop.optimizer)
    if factor != 1:
        for grads in gradients(loop.model):
            torch._foreach_mul_(grads, factor)
    if loop.config.trainer.max_grad_norm is not None:
        clip(gradients(loop.model), loop.config.trainer.max_grad_norm)
    for group in loop.optimizer.param_groups:
        group["lr"] = learning_rate(loop.config.optimizer, loop.state.step, loop.total_steps)
    loop.scaler.step(loop.optimizer)
    loop.scaler.update()


def gradients(model: Model) -> list[list[Tensor]]:
    """Those of whole weights and those of sharded ones, which PyTorch's operations on lists do not mix."""
    found = [weight.grad for weight in model.parameters() if weight.grad is not None]
    return [
        kind for sharded in (False, True) if (kind := [grad for grad in found if isinstance(grad, DTensor) is sharded])
    ]


def clip(kinds: list[list[Tensor]], limit: float) -> None:
    """As torch.nn.utils.clip_grad_norm_ does."""
    norms = [torch.nn.utils.get_total_norm(grads) for grads in kinds]
    norm = torch.linalg.vector_norm(torch.stack([n.full_tensor() if isinstance(n, DTensor) else n for n in norms]))
    for grads in kinds:
        torch._foreach_mul_(grads, (limit / (norm + 1e-6)).clamp(max=1.0))


def finish_epoch(loop: Loop) -> None:
    """Evaluate, log, and save: `best` when the monitored metric improved, and `last` always."""
    state, monitor, trainer = loop.state, loop.task.monitor, loop.config.trainer
    if state.window_count:
        loop.progress.log_train(state, loop.optimizer.param_groups[0]["lr"])
    size, workers = trainer.global_batch_size, trainer.read_workers
    sums = compute_sums(loop.runtime, loop.eval_step, loop.datasets.val, size, workers)
    metrics = compute_metrics(loop.task, sums)
    if not math.isfinite(metrics["loss"]):
        raise UserError(f"step {state.step}: the val loss is {metrics['loss']}; lower optimizer.learning_rate", 1)
    loop.progress.log_val(state, metrics)
    better = monitor.improves(metrics[monitor.metric], state.best)
    state.epochs_since_best = 0 if better else state.epochs_since_best + 1
    state.best = metrics[monitor.metric] if better else state.best
    if better:
        loop.save("best")
    loop.save("last")
    loop.progress.show_epoch(state, trainer.max_epochs)


@contextmanager
def profiler(loop: Loop) -> Iterator[Callable[[], None]]:
    """Trace a few of the first steps where trainer.profile is set."""
    if not loop.config.trainer.profile or loop.state.step > 0 or not loop.runtime.is_main:
        yield lambda: None
        return
    trace = loop.run.path / "trace.json"
    schedule = torch.profiler.schedule(wait=1, warmup=2, active=5, repeat=1)
    ready: Callable[[Any], None] = lambda profile: profile.export_chrome_trace(str(trace))  # noqa: E731
    with torch.profiler.profile(schedule=schedule, on_trace_ready=ready) as profile:
        yield profile.step
    print(profile.key_averages().table(sort_by="self_cpu_time_total", row_limit=10))
    print(f"trace: {trace} (open it at ui.perfetto.dev)")

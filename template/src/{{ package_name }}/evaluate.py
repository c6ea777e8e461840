"""Measure a model on a split; the result does not depend on the number of processes."""

import argparse
import sys

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from . import data, distributed
from .backend import place
from .checkpoint import load_model
from .config import Config, read_config
from .contract import BaseTask, Examples, Report
from .distributed import EvalStep, Runtime
from .errors import UserError
from .files import write_json
from .loading import read_batches
from .run import Checkpoint, Run, find_run
from .runs import print_table
from .tracking import RunMetrics, keep_up, read_rows

AMONG = 500
"""Examples of a split among which `evaluate` looks for the worst mistakes."""


def compute_sums(
    runtime: Runtime, eval_step: EvalStep, examples: Examples, batch_size: int, workers: int = 0
) -> dict[str, NDArray[np.float64]]:
    """The task's sums over a split, with "loss" and "count"; each example is seen once, by one rank."""
    mine = np.arange(runtime.data_rank, len(examples), runtime.data_size)
    parts = [mine[start : start + batch_size] for start in range(0, len(mine), batch_size)]
    sums: dict[str, NDArray[np.float64]] = {}
    batches = read_batches(examples, parts, None, workers)
    hidden = None if runtime.is_main else True  # None: shown on a terminal only
    for batch in tqdm(batches, "evaluate", len(parts), unit="batch", disable=hidden, delay=2, leave=False):
        for name, value in eval_step(batch).items():
            sums[name] = sums.get(name, np.zeros(())) + value.astype(np.float64)
    # A sharded model answers only where all ranks ask equally often.
    if len(parts) * batch_size * runtime.data_size < len(examples):
        eval_step(examples.read(np.zeros(1, np.int64), None))
    total: dict[str, NDArray[np.float64]] = {}
    for part in runtime.gather(sums)[: runtime.data_size]:
        for name, value in part.items():
            total[name] = total.get(name, np.zeros(())) + value
    return total


def compute_metrics(task: BaseTask, sums: dict[str, NDArray[np.float64]]) -> dict[str, float]:
    """The mean loss and the task's metrics."""
    metrics = {"loss": float(sums["loss"] / sums["count"])}
    return metrics | {name: float(value) for name, value in task.compute_metrics(sums).items()}


def build_split(config: Config, split: str) -> Examples:
    """The examples of "train", "val" or "test", of which there must be some."""
    examples: Examples = getattr(data.build_datasets(config.data), split)
    if len(examples) == 0:
        raise UserError(f"data: the {split} split is empty")
    return examples


def evaluate(run: Run, split: str, which: Checkpoint) -> tuple[dict[str, float], Report]:
    """Evaluate a run's checkpoint; metrics, tables and pictures go to the run directory and its trackers."""
    config = read_config(run.config)
    examples = build_split(config, split)
    with distributed.start(config.trainer) as runtime:
        _, task, model, state = load_model(run, which)
        eval_step = runtime.build_eval_step(task, place(model, runtime.device))
        batch_size, workers = config.trainer.global_batch_size, config.trainer.read_workers
        sums = compute_sums(runtime, eval_step, examples, batch_size, workers)
    metrics, report = compute_metrics(task, sums), task.build_report(sums)
    if not runtime.is_main:
        return metrics, report
    folder = run.path / "evaluation" / split
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "metrics.json", {"checkpoint": which, "step": state.step, **metrics})
    write_json(folder / "tables.json", dict(report.tables))
    pictures = dict(report.pictures)
    if task.examples_are_independent and any(item.kind == "image" for item in task.signature().inputs):
        from .mistakes import draw_mistakes, find_mistakes  # with onnxruntime, which training does without

        pictures["mistakes"] = draw_mistakes(*find_mistakes(run, split, among=AMONG, which=which))
    for name, png in pictures.items():
        (folder / f"{name}.png").write_bytes(png)
    log, before = RunMetrics(run), {row.name: row.value for row in read_rows(run.metrics) if row.step == state.step}
    measured = {f"{split}/{name}": value for name, value in metrics.items()}
    # Training logged those of "val" itself; what is measured once more is news where it differs.
    news = {name: value for name, value in measured.items() if name not in before or before[name] != value}
    log.log({} if split == "val" and before.keys() >= measured.keys() else news, state.step, state.epoch)
    log.finish("")
    keep_up(run, config.tracking)
    return metrics, report


def main(args: argparse.Namespace) -> None:
    run = find_run(args.run, needs=Run.checkpoint_name(args.checkpoint))
    metrics, report = evaluate(run, args.split, args.checkpoint)
    if not distributed.is_main_process():
        return
    for name, rows in report.tables.items():
        print(f"\n{name}")
        print_table(rows)
    print(f"\n{run.path} ({args.checkpoint} checkpoint) on {args.split}:")
    for name, value in metrics.items():
        print(f"  {name:<12} {value:.4f}")
    print(f"details: {run.path / 'evaluation' / args.split}", file=sys.stderr)

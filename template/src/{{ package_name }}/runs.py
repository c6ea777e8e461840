"""Runs side by side: what each reached, and the settings that tell them apart."""

import argparse
import json
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml

from .errors import UserError
from .files import flatten, read_yaml
from .run import Run, find_run, list_runs
from .tracking import Row, read_rows

OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "!=": operator.ne,
    "=": operator.eq,
    ">": operator.gt,
    "<": operator.lt,
}
NOT_COMPARED = ("name", "runs_dir", "schema_version", "tracking.")


@dataclass(frozen=True)
class Summary:
    """`metrics` are those of the best checkpoint on the validation set, and what `evaluate` measured last."""

    run: Run
    status: str
    steps: int
    metrics: Mapping[str, float]
    settings: Mapping[str, Any]

    @property
    def values(self) -> dict[str, Any]:
        """All that runs can be filtered and sorted by."""
        own = {"run": self.run.path.name, "experiment": self.run.path.parent.name}
        return own | {"status": self.status, "steps": self.steps, **self.metrics, **self.settings}


def summarize(run: Run) -> Summary:
    status = run.read_status()
    lost = status.get("status") == "running" and not run.may_be_training
    rows, monitor = read_rows(run.metrics), run.read_environment().get("monitor", {"metric": "loss", "mode": "min"})
    choose = max if monitor["mode"] == "max" else min
    monitored = [row for row in rows if row.name == f"val/{monitor['metric']}" and not math.isnan(row.value)]
    best = choose(monitored, key=lambda row: row.value).step if monitored else None
    kept = [row for row in rows if (row.step == best if row.name.startswith("val/") else row.name[:6] != "train/")]
    config = flatten(read_yaml(run.config)) if run.config.is_file() else {}
    settings = {key: value for key, value in config.items() if not key.startswith(NOT_COMPARED)}
    state = "killed" if lost else status.get("status", "unknown")
    return Summary(run, state, max((row.step for row in rows), default=0), {r.name: r.value for r in kept}, settings)


def differing(summaries: Sequence[Summary]) -> list[str]:
    """The settings that not all runs share."""
    keys = dict.fromkeys(key for summary in summaries for key in summary.settings)
    return [key for key in keys if len({repr(summary.settings.get(key)) for summary in summaries}) > 1]


def main(args: argparse.Namespace) -> None:
    runs = [find_run(path) for path in args.runs] or list_runs()
    if not runs:
        find_run(None)  # says that there is none
    found = [summarize(run) for run in runs]
    for condition in args.where:
        found = choose(found, condition)
    if args.sort:
        key = args.sort.removeprefix("-")
        known(found, key)
        there = [summary for summary in found if isinstance(summary.values.get(key), int | float | str)]
        numbers = all(not isinstance(summary.values[key], str) for summary in there)
        there.sort(key=lambda each: each.values[key] if numbers else str(each.values[key]), reverse=args.sort[0] == "-")
        found = there + [summary for summary in found if summary not in there]
    found = found[: args.limit]
    if args.plot:
        plot(found, args.plot)
        print(f"wrote {args.plot}")
    elif args.format == "jsonl":
        for summary in found:
            print(json.dumps({"path": str(summary.run.path), **summary.values}, default=str))
    else:
        print_table(table(found))


def choose(found: list[Summary], condition: str) -> list[Summary]:
    """The runs for which a condition holds, such as "val/accuracy>0.9" or "status=finished"."""
    parts = re.fullmatch(r"([\w./-]+?)(>=|<=|!=|=|>|<)(.*)", condition)
    if parts is None:
        raise UserError(f"--where {condition}: write KEY=VALUE, or with one of {' '.join(OPERATORS)}")
    key, sign, text = parts.groups()
    known(found, key)
    value = _read_value(text)

    def holds(summary: Summary) -> bool:
        if key not in summary.values:
            return False
        try:
            return OPERATORS[sign](summary.values[key], value)
        except TypeError:
            raise UserError(f"--where {condition}: {key} is {summary.values[key]!r} in {summary.run.path}") from None

    return [summary for summary in found if holds(summary)]


def _read_value(text: str) -> Any:
    try:
        return float(text)  # YAML takes 1e-3 for a word
    except ValueError:
        pass
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return text


def known(found: Sequence[Summary], key: str) -> None:
    keys = {each for summary in found for each in summary.values}
    if found and key not in keys:
        near = get_close_matches(key, keys, n=1)
        raise UserError(f"{key}: no run has it{f'; did you mean {near[0]}?' if near else ''}")


def table(found: Sequence[Summary]) -> list[dict[str, Any]]:
    """A row a run: how it ended, its metrics, and the settings that differ, by short names where these are clear."""
    different = differing(found)
    short = [key.rpartition(".")[2] for key in different]
    names = {key: name if short.count(name) == 1 else key for key, name in zip(different, short, strict=True)}
    metrics = dict.fromkeys(name for summary in found for name in summary.metrics)
    rows = []
    for summary in found:
        row: dict[str, Any] = {"run": summary.run.name, "status": summary.status, "steps": summary.steps}
        row |= {name: summary.metrics.get(name) for name in metrics}
        rows.append(row | {names[key]: summary.settings.get(key) for key in different})
    return rows


def print_table(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print rows of cells in columns."""
    cells = [[_show(value) for value in row.values()] for row in rows]
    lines = [list(map(str, rows[0])) if rows else [], *cells]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _show(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)


def plot(found: Sequence[Summary], file: Path) -> None:
    """Curves of all runs, a picture a metric: on the validation set, and dashed on the training set."""
    try:
        import matplotlib
    except ImportError:
        raise UserError("--plot needs matplotlib: make setup") from None
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    curves = {summary.run.name: read_rows(summary.run.metrics) for summary in found}
    names = dict.fromkeys(
        row.name.partition("/")[2] for rows in curves.values() for row in rows if row.name.startswith("val/")
    )
    if not names:
        raise UserError("--plot: no run has curves yet")
    figure, axes = plt.subplots(1, len(names), figsize=(6 * len(names), 4.5), squeeze=False, layout="constrained")
    for place, name in zip(axes[0], names, strict=True):
        for number, (run, rows) in enumerate(curves.items()):
            for split, line in (("val", "-"), ("train", "--")):
                points = [row for row in rows if row.name == f"{split}/{name}"]
                label = run if split == "val" else None
                place.plot(*_columns(points), line, color=f"C{number % 10}", label=label, linewidth=1.2)
        place.set(title=name.replace("_", " "), xlabel="step")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", fontsize="small")
    try:
        figure.savefig(file, dpi=120)
    except (ValueError, OSError) as error:
        raise UserError(f"--plot {file}: {error}") from None
    plt.close(figure)


def _columns(rows: Sequence[Row]) -> tuple[list[int], list[float]]:
    return [row.step for row in rows], [row.value for row in rows]

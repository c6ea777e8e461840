"""Where metrics go. Each service is one file here, with `start(run_dir, config, step) -> Tracker`."""

import importlib
import json
import pkgutil
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ..files import write_text

AVAILABLE = tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


class Tracker:
    """Receives what happens in a run, and as it stands does nothing with it; metric names are "split/name"."""

    def log_metrics(self, metrics: Mapping[str, float], step: int, epoch: int) -> None: ...
    def log_picture(self, name: str, png: bytes, step: int) -> None: ...
    def finish(self, status: str) -> None: ...


class JsonlTracker(Tracker):
    """Always on: one line of metrics.jsonl a value. What lies past `step` is cut when a run goes on there."""

    def __init__(self, file: Path, step: int | None) -> None:
        if step is not None and file.is_file():
            _cut(file, step)
        self.file = file.open("a", encoding="utf-8")

    def log_metrics(self, metrics: Mapping[str, float], step: int, epoch: int) -> None:
        now = round(time.time(), 3)
        for key, value in metrics.items():
            split, _, name = key.partition("/")
            line = {"step": step, "epoch": epoch, "split": split, "name": name, "value": value, "time": now}
            self.file.write(json.dumps(line) + "\n")
        self.file.flush()

    def finish(self, status: str) -> None:
        self.file.close()


class Trackers(Tracker):
    """Several trackers as one. The run directory comes first; a service that fails later is dropped with a warning."""

    def __init__(self, own: Tracker, services: Mapping[str, Tracker]) -> None:
        self.own = own
        self.services = dict(services)

    def log_metrics(self, metrics: Mapping[str, float], step: int, epoch: int) -> None:
        self._call("log_metrics", metrics, step, epoch)

    def log_picture(self, name: str, png: bytes, step: int) -> None:
        self._call("log_picture", name, png, step)

    def finish(self, status: str) -> None:
        self._call("finish", status)

    def _call(self, method: str, *args: Any) -> None:
        getattr(self.own, method)(*args)
        for name, tracker in list(self.services.items()):
            try:
                getattr(tracker, method)(*args)
            except Exception as error:
                del self.services[name]
                print(f"warning: {name} stopped working, training goes on without it: {error}", file=sys.stderr)


def build_tracker(names: Iterable[str], run_dir: Path, config: Mapping[str, Any], step: int | None = None) -> Tracker:
    """Start metrics.jsonl and the chosen services; `step` is where training goes on, None adds to what is there."""
    services = {name: importlib.import_module(f".{name}", __name__).start(run_dir, config, step) for name in names}
    return Trackers(JsonlTracker(run_dir / "metrics.jsonl", step), services)


def _cut(file: Path, step: int) -> None:
    kept = []
    for line in file.read_text(encoding="utf-8").splitlines():
        try:
            if json.loads(line)["step"] <= step:
                kept.append(line + "\n")
        except ValueError:  # the last line of a run that was killed while writing it
            continue
    write_text(file, "".join(kept))

"""What a run logs: lines of its own metrics.jsonl, and from there the services that were chosen, each a file here.

Nothing reaches a service but by the run's directory, so that `sync` can tell any service all of any run.
"""

import hashlib
import importlib
import json
import pkgutil
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..errors import UserError, redact
from ..files import read_json, read_yaml, write_json, write_text

if TYPE_CHECKING:
    from ..config import TrackingSettings
    from ..run import Run

AVAILABLE = tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))
EVERY = 1.0
"""Seconds between two looks at metrics.jsonl."""
AT_THE_END = 60.0
"""Seconds that a service has to take what is left."""


class Tracker:
    """A run as one service keeps it: what `start(run, step)` of its module returns, or a UserError.

    `step` is where training goes on. What a method raises is said in one line, and the run goes on without the service.
    """

    place: str = "local"  # a service may keep runs in several; what has been told is remembered for each
    where: str = ""  # how to look at the run, for people
    is_new: bool = False  # knows nothing of the run, whatever is remembered
    forgets: bool = False  # drops what lies past `step`, and is told it again
    ahead: frozenset[tuple[str, int]] = frozenset()  # name and step of what it has past `step`
    keeps_at_the_end: bool = False  # and what of a process that ends before is not known, so all of it is told again

    def log_metrics(self, metrics: Mapping[str, float], step: int, epoch: int, seconds: float) -> None:
        """Names are "split/name"; `seconds` since 1970 is when they were logged."""

    def log_file(self, file: Path, name: str, step: int) -> None:
        """A picture, or the exported model."""

    def flush(self) -> None:
        """Return once everything so far is safe."""

    def finish(self, status: str) -> None:
        """The run is finished, failed or interrupted."""


class Metrics:
    """Where a process logs to that is not the first: nowhere."""

    def log(self, metrics: Mapping[str, float], step: int, epoch: int) -> None: ...
    def finish(self, status: str) -> None: ...


class RunMetrics(Metrics):
    """Adds to metrics.jsonl; the services follow. What lies past `step` is cut where a run goes on there."""

    def __init__(self, run: "Run", settings: "TrackingSettings | None" = None, step: int | None = None) -> None:
        if step is not None and run.metrics.is_file():
            _cut(run, step)
        self.mirrors: list[Mirror] = []
        try:
            for mirror in _start(run, settings, step) if settings else ():
                self.mirrors.append(mirror)
        except UserError as error:
            run.write_status("failed", error=str(error))
            for mirror in self.mirrors:
                mirror.tell_all()
            raise
        torn = run.metrics.is_file() and run.metrics.read_bytes()[-1:] not in (b"", b"\n")
        self.file = run.metrics.open("a", encoding="utf-8")
        self.file.write("\n" if torn else "")  # by a process that was killed
        for mirror in self.mirrors:
            mirror.thread.start()

    def log(self, metrics: Mapping[str, float], step: int, epoch: int) -> None:
        """Names are "split/name"."""
        now = round(time.time(), 3)
        for key, value in metrics.items():
            split, _, name = key.partition("/")
            line = {"step": step, "epoch": epoch, "split": split, "name": name, "value": value, "time": now}
            self.file.write(json.dumps(line) + "\n")
        self.file.flush()

    def finish(self, status: str) -> None:
        self.file.close()
        for mirror in self.mirrors:
            mirror.end(status)
        deadline = time.monotonic() + AT_THE_END
        for mirror in self.mirrors:
            mirror.thread.join(max(0, deadline - time.monotonic()))
            if mirror.thread.is_alive():
                mirror.warn(f"has not taken everything within {AT_THE_END:.0f} s")


class Row(NamedTuple):
    """A line of metrics.jsonl."""

    step: int
    epoch: int
    time: float
    name: str
    value: float


class Mirror:
    """Tells one service what stands in a run's directory, each line once, whatever process wrote it."""

    def __init__(self, name: str, run: "Run", step: int | None = None) -> None:
        self.name, self.run, self.failed, self.status = name, run, False, "running"
        self.tracker: Tracker = importlib.import_module(f".{name}", __name__).start(run, step)
        self.file = run.path / "tracking" / f"{name}.json"
        told = {} if self.tracker.is_new else read_json(self.file).get(self.tracker.place, {})
        self.lines: int = told.get("lines", 0)
        # What was told and then cut: training logs it once more.
        self.repeated = {(key, at) for key, at in told.get("repeated", [])} | self.tracker.ahead
        if self.tracker.forgets and step is not None:
            self.repeated = {(key, at) for key, at in self.repeated if at <= step}
        self.files: dict[str, str] = told.get("files", {})
        self.position: int | None = None
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._follow, name=name, daemon=True)

    def tell_all(self) -> None:
        """What stands in the directory so far, however long it takes."""
        self.thread.start()
        self.end(str(self.run.read_status().get("status")))
        self.thread.join()

    def end(self, status: str) -> None:
        """Have the thread tell what is left, and how the run ended."""
        self.status = status
        self.ended.set()

    def _follow(self) -> None:
        try:
            while not self.ended.wait(EVERY):
                self._catch_up()
            self._catch_up()
            self._tell_files()
            self.tracker.finish(self.status)
            self._remember(at_the_end=True)
        except Exception as error:
            self.warn(f"stopped working ({type(error).__name__}: {error})")

    def warn(self, what: str) -> None:
        self.failed = True
        again = f"later: python -m {__package__.partition('.')[0]} sync {self.run.path} --tracker {self.name}"
        line = f"warning: {self.name} {what}; the run goes on without it; {again}"
        print(redact(" ".join(line.split())), file=sys.stderr)

    def _catch_up(self) -> None:
        before = self.lines
        for (step, epoch, seconds), rows in groupby(self._read(), lambda row: row[:3]):
            metrics = {row.name: row.value for row in rows if not self._was_told(row)}
            if metrics:
                self.tracker.log_metrics(metrics, step, epoch, seconds)
        if self.lines > before:
            self._remember()

    def _read(self) -> Iterator[Row]:
        """Whole lines that were not told yet."""
        if not self.run.metrics.is_file():
            return
        with self.run.metrics.open("rb") as file:
            if self.position is None:
                self.position = sum(len(file.readline()) for _ in range(self.lines))
            file.seek(self.position)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self.position += len(line)
                self.lines += 1
                if row := _parse(line):
                    yield row

    def _was_told(self, row: Row) -> bool:
        if (row.name, row.step) in self.repeated:
            self.repeated.remove((row.name, row.step))
            return True
        return False

    def _tell_files(self) -> None:
        for file in (*sorted(self.run.path.glob("evaluation/*/*.png")), self.run.model):
            name = file.relative_to(self.run.path).as_posix()
            if not file.is_file() or self.files.get(name) == (digest := hashlib.sha256(file.read_bytes()).hexdigest()):
                continue
            measured = read_json(file.parent / "metrics.json")
            self.tracker.log_file(file, name.removeprefix("evaluation/"), int(measured.get("step", 0)))
            self.files[name] = digest
            self._remember()

    def _remember(self, at_the_end: bool = False) -> None:
        if self.tracker.keeps_at_the_end and not at_the_end:
            return
        if not at_the_end:
            self.tracker.flush()
        told = {"lines": self.lines, "repeated": sorted(self.repeated), "files": self.files}
        self.file.parent.mkdir(exist_ok=True)
        write_json(self.file, read_json(self.file) | {self.tracker.place: told})


def open_mirror(name: str, run: "Run", step: int | None = None) -> Mirror:
    """Start a service; whatever it raises becomes a UserError that names it."""
    try:
        return Mirror(name, run, step)
    except Exception as error:
        kind = "" if isinstance(error, UserError | ImportError) else f"{type(error).__name__}: "
        raise UserError(redact(f"{name}: {kind}{error}"), exit_code=1) from None


def keep_up(run: "Run", settings: "TrackingSettings") -> None:
    """Tell the services what `evaluate` or `export` added; a process that trains the run does so itself."""
    if not run.may_be_training:
        for mirror in _start(run, settings.model_copy(update={"required": False})):
            mirror.tell_all()


def _start(run: "Run", settings: "TrackingSettings", step: int | None = None) -> Iterator[Mirror]:
    for name in settings.trackers:
        try:
            mirror = open_mirror(name, run, step)
        except UserError as error:
            if settings.required:
                raise UserError(f"{error}; or do without it: --no-tracking.required", 1) from None
            print(f"warning: {error}; the run goes on without it", file=sys.stderr)
            continue
        if step is not None and mirror.tracker.where:
            print(f"{name}: {redact(mirror.tracker.where)}")
        yield mirror


def read_rows(file: Path) -> list[Row]:
    """What a run logged so far."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    return [row for row in map(_parse, lines) if row is not None]


def read_tags(run: "Run") -> dict[str, str]:
    return dict(read_yaml(run.config).get("tracking", {}).get("tags", {}))


def _parse(line: bytes | str) -> Row | None:
    """None for what a process wrote that was killed."""
    try:
        row = json.loads(line)
        return Row(row["step"], row["epoch"], row["time"], f"{row['split']}/{row['name']}", row["value"])
    except (ValueError, KeyError, TypeError):
        return None


def _cut(run: "Run", step: int) -> None:
    """Drop the lines past `step`, and remember which of them the services have."""
    lines = run.metrics.read_text(encoding="utf-8").splitlines()
    rows = [_parse(line) for line in lines]
    stays = [row is not None and row.step <= step for row in rows]
    if all(stays):
        return
    for file in (run.path / "tracking").glob("*.json"):
        places = read_json(file)
        for told in places.values():
            count = told["lines"]
            told["repeated"] += [[row.name, row.step] for row in rows[:count] if row is not None and row.step > step]
            told["lines"] = sum(stays[:count])
        write_json(file, places)
    write_text(run.metrics, "".join(f"{line}\n" for line, keep in zip(lines, stays, strict=True) if keep))

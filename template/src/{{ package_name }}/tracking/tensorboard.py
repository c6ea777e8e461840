"""TensorBoard: event files in the run directory. Look at all runs: tensorboard --logdir runs"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from . import Tracker

if TYPE_CHECKING:
    from ..run import Run


class TensorBoardTracker(Tracker):
    """Writes scalars and pictures; where training goes on, TensorBoard hides what lies past `step`."""

    forgets = True

    def __init__(self, run: "Run", step: int | None) -> None:
        folder = run.path / "tensorboard"
        self.is_new = not (folder.is_dir() and (run.path / "tracking/tensorboard.json").is_file())
        if self.is_new:  # of a process that was killed, or of a version that did not remember
            for file in folder.glob("events.out.tfevents.*"):
                file.unlink()
        self.writer = EventFileWriter(str(folder))
        if step is not None:
            self.writer.add_event(Event(step=step + 1, session_log=SessionLog(status=SessionLog.START)))

    def log_metrics(self, metrics: Mapping[str, float], step: int, epoch: int, seconds: float) -> None:
        values = [Summary.Value(tag=name, simple_value=value) for name, value in metrics.items()]
        self.writer.add_event(Event(wall_time=seconds, step=step, summary=Summary(value=values)))

    def log_file(self, file: Path, name: str, step: int) -> None:
        if file.suffix == ".png":
            picture = Summary.Image(encoded_image_string=file.read_bytes())
            summary = Summary(value=[Summary.Value(tag=name.removesuffix(".png"), image=picture)])
            self.writer.add_event(Event(wall_time=file.stat().st_mtime, step=step, summary=summary))

    def flush(self) -> None:
        self.writer.flush()

    def finish(self, status: str) -> None:
        self.writer.close()


def start(run: "Run", step: int | None) -> TensorBoardTracker:
    return TensorBoardTracker(run, step)

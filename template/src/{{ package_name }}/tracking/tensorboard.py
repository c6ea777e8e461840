"""TensorBoard: event files in the run directory. Look at all runs: tensorboard --logdir runs"""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from . import Tracker


class TensorBoardTracker(Tracker):
    """Writes scalars and pictures; where training goes on, TensorBoard hides what lies past `step`."""

    def __init__(self, run_dir: Path, step: int | None) -> None:
        self.writer = EventFileWriter(str(run_dir / "tensorboard"), flush_secs=10)
        if step is not None:
            self._add(step + 1, session_log=SessionLog(status=SessionLog.START))

    def log_metrics(self, metrics: Mapping[str, float], step: int, epoch: int) -> None:
        values = [Summary.Value(tag=name, simple_value=value) for name, value in metrics.items()]
        self._add(step, summary=Summary(value=values))

    def log_picture(self, name: str, png: bytes, step: int) -> None:
        picture = Summary.Image(encoded_image_string=png)
        self._add(step, summary=Summary(value=[Summary.Value(tag=name, image=picture)]))

    def finish(self, status: str) -> None:
        self.writer.close()

    def _add(self, step: int, **content: Any) -> None:
        self.writer.add_event(Event(wall_time=time.time(), step=step, **content))


def start(run_dir: Path, config: Mapping[str, Any], step: int | None) -> TensorBoardTracker:
    return TensorBoardTracker(run_dir, step)

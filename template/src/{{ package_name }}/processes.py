"""What a process is among those that train or evaluate together, whatever the framework. Here: the only one."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from .errors import Attempt, UserError

T = TypeVar("T")


@dataclass
class Process:
    """Rank 0 is the main one."""

    rank: int
    world_size: int
    stop_requested: bool = field(default=False, kw_only=True)

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    @property
    def data_rank(self) -> int:
        """Which share of the data this process sees, of `data_size` shares."""
        return self.rank

    @property
    def data_size(self) -> int:
        return self.world_size

    def join(self) -> None:
        """Meet the other processes."""

    def leave(self) -> None:
        """Part from them."""

    def gather(self, value: T) -> list[T]:
        """The value of every rank, on every rank; any plain object."""
        return [value]

    def broadcast(self, value: T) -> T:
        """The value of rank 0, on every rank; any plain object."""
        return value

    def agree(self, value: T, rule: str) -> T:
        """The value, if every rank has the same."""
        values = self.gather(value)
        if any(other != value for other in values):
            raise UserError(f"{rule}, got {values}")
        return value

    def on_main(self, function: Callable[[], T]) -> T:
        """Call the function on rank 0 and hand its result, or its UserError, to every rank."""
        result: T = self.broadcast(Attempt(function) if self.is_main else Attempt()).outcome()
        return result

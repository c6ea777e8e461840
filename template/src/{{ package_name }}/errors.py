"""The one exception that reaches a user as a line of text, and how it reaches other processes."""

import os
import re
from collections.abc import Callable
from typing import Any

SECRET = re.compile(r"(KEY|TOKEN|PASSWORD|PASSWD|SECRET)$")
CREDENTIALS = re.compile(r"(?<=:/)/?[^/:@\s]+:[^/\s]+(?=@)")
"""Name and password in an address, before the host; where it became a path, one slash is left before them."""


def secrets() -> dict[str, str]:
    """Variables of the environment that hold one, by their names."""
    return {name: value for name, value in os.environ.items() if SECRET.search(name.upper()) and len(value) >= 8}


def redact(text: str) -> str:
    for name, value in secrets().items():
        text = text.replace(value, f"${name}")
    return re.sub(r"(?<=://)[^/\s]+(?=@)", "...", text)


class UserError(Exception):
    """Something the user can mend: shown as one line, without a traceback.

    `exit_code` is 2 for bad input and 1 for a failure.
    """

    def __init__(self, message: str, exit_code: int = 2) -> None:
        super().__init__(" ".join(message.split()))
        self.exit_code = exit_code

    @classmethod
    def of(cls, error: OSError) -> "UserError":
        """Of the folder or the disk that is written to."""
        return cls(f"{error.filename or 'writing'}: {error.strerror}", exit_code=1)


class Attempt:
    """What came of a call, in a form that travels between processes."""

    def __init__(self, function: Callable[[], Any] = lambda: None) -> None:
        self.result: Any = None
        self.failure: UserError | None = None
        try:
            self.result = function()
        except UserError as error:
            self.failure = error
        except OSError as error:
            self.failure = UserError.of(error)

    def outcome(self) -> Any:
        if self.failure is not None:
            raise self.failure
        return self.result

"""Talk to a language server or a debug adapter: JSON messages, each after its length, over its stdin and stdout."""

import json
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

Message = dict[str, Any]


class Peer:
    """A running server, which ends with the block. What it sends is kept until somebody waits for it."""

    def __init__(self, command: Sequence[str | Path], cwd: Path, env: Mapping[str, str] | None = None) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, cwd=cwd, env=env, stdin=pipe, stdout=pipe, start_new_session=True)
        self._kept: list[Message] = []
        self._arriving: queue.Queue[Message | None] = queue.Queue()
        threading.Thread(target=self._read_all, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def _read_all(self) -> None:
        stream = self.process.stdout
        assert stream
        while header := stream.readline():
            length = int(header.removeprefix(b"Content-Length:"))
            while stream.readline().strip():  # other headers, up to the empty line
                pass
            self._arriving.put(json.loads(stream.read(length)))
        self._arriving.put(None)

    def send(self, message: Message) -> None:
        body, stream = json.dumps(message).encode(), self.process.stdin
        assert stream
        stream.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        stream.flush()

    def answer(self, message: Message) -> bool:
        """Answer the server's own requests; whether the message was one."""
        raise NotImplementedError

    def wait_for(self, wanted: Callable[[Message], bool]) -> Message:
        """The first message that fits, of those that nobody has waited for."""
        for message in self._kept:
            if wanted(message):
                self._kept.remove(message)
                return message
        while True:
            try:
                arrived = self._arriving.get(timeout=120)
            except queue.Empty:
                raise AssertionError(f"nothing that fits among {self._kept}") from None
            assert arrived is not None, f"ended before; nothing that fits among {self._kept}"
            if self.answer(arrived):
                continue
            if wanted(arrived):
                return arrived
            self._kept.append(arrived)

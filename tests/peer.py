"""Talk to a language server or a debug adapter: JSON messages, each after its length."""

import json
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

Message = dict[str, Any]


class Peer:
    """What it sends is kept until somebody waits for it."""

    def __init__(self, incoming: IO[bytes], outgoing: IO[bytes]) -> None:
        self._incoming, self._outgoing = incoming, outgoing
        self._kept: list[Message] = []
        self._arriving: queue.Queue[Message | None] = queue.Queue()
        threading.Thread(target=self._read_all, daemon=True).start()

    def _read_all(self) -> None:
        while header := self._incoming.readline():
            length = int(header.removeprefix(b"Content-Length:"))
            while self._incoming.readline().strip():  # other headers, up to the empty line
                pass
            self._arriving.put(json.loads(self._incoming.read(length)))
        self._arriving.put(None)

    def send(self, message: Message) -> None:
        body = json.dumps(message).encode()
        self._outgoing.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        self._outgoing.flush()

    def answer(self, message: Message) -> bool:
        """Answer the peer's own requests; whether the message was one."""
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


@contextmanager
def server(
    command: Sequence[str | Path], cwd: Path, env: Mapping[str, str] | None = None
) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Run a server that talks over its stdout and stdin, which it gives; it ends with the block."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=cwd, env=env, stdin=pipe, stdout=pipe, start_new_session=True) as process:
        assert process.stdin and process.stdout
        try:
            yield process.stdout, process.stdin
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)

"""Commands without the start of their framework: a process that has imported it forks for each of them.

A start takes 4 (PyTorch) to 10 (TensorFlow) seconds of processor before the first line of a project runs, which most
tests are not about. What runs here is the project's own code from its files, in a process of its own with the working
directory, environment, arguments and output that the command line would have. As a program, it is that process.
"""

import importlib
import json
import os
import random
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

MODULES = {
    "pytorch": ("torch._dynamo", "onnxruntime", "pydantic_settings"),
    "tensorflow": ("keras", "onnxruntime", "pydantic_settings"),
}
# Read when the frameworks are loaded: what the tests and framework.py set, so that a command finds it as it would be.
ENV = dict(os.environ, PYTHONPATH="", PYTHONDONTWRITEBYTECODE="", OMP_NUM_THREADS="1", TF_CPP_MIN_LOG_LEVEL="3")
ANSWER = struct.Struct("i")


def serve(control: socket.socket) -> dict[str, Any]:
    """Fork for every request, for as long as there are tests; returns one in the process that is to run it."""
    while True:
        message, files, _, _ = socket.recv_fds(control, 1 << 20, 3)
        if not message:
            os._exit(0)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that answer
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            *output, answer = files
            if (command := os.fork()) == 0:
                for place, file in enumerate(output, start=1):
                    os.dup2(file, place)
                for file in (control.detach(), *files):
                    os.close(file)
                request: dict[str, Any] = json.loads(message)
                return request
            os.write(answer, ANSWER.pack(command))
            os.write(answer, ANSWER.pack(os.waitstatus_to_exitcode(os.waitpid(command, 0)[1])))
            os._exit(0)
        for file in files:
            os.close(file)


def become(command: list[str], cwd: str, env: dict[str, str]) -> None:
    """Be `python -m MODULE ARGUMENTS` or `python FILE ARGUMENTS`."""
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    random.seed()
    sys.modules["numpy"].random.seed()
    sys.path[:1] = filter(None, env.get("PYTHONPATH", "").split(os.pathsep))
    if command[0] == "-m":
        sys.path.insert(0, cwd)
        sys.argv = command[1:]
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, os.path.dirname(command[0]))
        sys.argv = command
        runpy.run_path(command[0], run_name="__main__")


@cache
def start(python: Path, framework: str) -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [str(python), __file__, str(theirs.fileno()), *MODULES[framework]]
    nothing = subprocess.DEVNULL
    subprocess.Popen(command, env=ENV, pass_fds=[theirs.fileno()], stdin=nothing, stdout=nothing, stderr=nothing)
    theirs.close()
    return ours


def run(
    python: Path, framework: str, command: Sequence[str], cwd: Path, env: Mapping[str, str], timeout: float
) -> subprocess.CompletedProcess[str]:
    """As subprocess.run([PYTHON, *COMMAND]) with the output captured."""
    request = {"command": command, "cwd": str(cwd), "env": dict(env)}
    answers, answer = os.pipe()
    with TemporaryFile() as out, TemporaryFile() as err, open(answers, "rb", buffering=0) as answered:
        files = [out.fileno(), err.fileno(), answer]
        socket.send_fds(start(python, framework), [json.dumps(request).encode()], files)
        os.close(answer)
        process = ANSWER.unpack(answered.read(ANSWER.size))[0]
        if not select.select([answered], [], [], timeout)[0]:
            os.kill(process, signal.SIGKILL)
            raise subprocess.TimeoutExpired(command, timeout)
        code = ANSWER.unpack(answered.read(ANSWER.size))[0]
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(command, code, out.read().decode(), err.read().decode())


if __name__ == "__main__":
    for module in sys.argv[2:]:
        importlib.import_module(module)
    become(**serve(socket.socket(fileno=int(sys.argv[1]))))

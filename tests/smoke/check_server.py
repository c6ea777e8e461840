"""Run `check` in one project after another, each in a process forked after the slow imports.

Reads a project's folder from each line of stdin, and answers with one line of JSON. Runs in a project's environment.
"""

import json
import os
import runpy
import sys
import tempfile
import traceback
from importlib import import_module
from pathlib import Path

import numpy  # noqa: F401
import pydantic_settings  # noqa: F401
import sklearn.datasets  # noqa: F401
import yaml  # noqa: F401
from tqdm import tqdm  # noqa: F401

package, framework = sys.argv[1:]
for module in {"pytorch": ("torch.export",), "tensorflow": ("tensorflow", "keras")}[framework]:
    import_module(module)


def check(folder: Path, out: int, err: int) -> int:
    """`python -m PACKAGE check` in the folder, in a child process."""
    child = os.fork()
    if child == 0:
        os.dup2(out, 1)
        os.dup2(err, 2)
        os.chdir(folder)
        sys.path.insert(0, str(folder / "src"))
        sys.argv = [package, "check"]
        code = 1
        try:
            runpy.run_module(package, run_name="__main__", alter_sys=True)
        except SystemExit as stop:
            code = int(stop.code or 0)
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


for line in sys.stdin:
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        answer: dict[str, object] = {"returncode": check(Path(line.strip()), out.fileno(), err.fileno())}
        for name, file in (("stdout", out), ("stderr", err)):
            file.seek(0)
            answer[name] = file.read()
    print(json.dumps(answer), flush=True)

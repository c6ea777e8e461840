"""After Cookiecutter has asked: Copier generates the project, here, so that it is the same and can be updated."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec

# Cookiecutter fills the answers in.
given = json.loads(r"""{{ cookiecutter | tojson }}""")
copier = [sys.executable, "-m", "copier"] if find_spec("copier") else ["copier"]
# A local template is named from where Cookiecutter was started.
local = os.path.join(os.environ.get("PWD", ""), given["_template"])
source = os.path.normpath(local) if os.path.isdir(local) else given["_template"]
answers = [f"--data={name}={value}" for name, value in given.items() if not name.startswith("_")]
version = ["--vcs-ref", given["_checkout"]] if given["_checkout"] else []
command = [*copier, "copy", "--quiet", "--defaults", *answers, *version, source, "."]
done = subprocess.run(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
if done.returncode:
    sys.exit(f"error: {done.stderr.strip().splitlines()[-1]}")
print(f"{os.getcwd()} is ready: its README.md says how to go on")

"""Before Cookiecutter asks: Copier must be there, for it generates the project.

Cookiecutter runs this in a copy of the template, where it then looks for a folder to render; ours stays empty.
"""

import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

if not (find_spec("copier") or shutil.which("copier")):
    sys.exit("error: this template needs Copier: pip install copier, or pipx install copier")
Path("{{ cookiecutter.__folder }}").mkdir(exist_ok=True)

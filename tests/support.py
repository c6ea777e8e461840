"""Render projects from this checkout and run commands in them: what the tests of every tier share."""

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

import copier
import jinja2
import yaml

ROOT = Path(__file__).resolve().parent.parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mlstack"
PRESETS = ("solo", "startup", "large-org")
FRAMEWORKS = ("pytorch", "tensorflow")
WIDE = {
    "launchers": ["ddp", "horovod", "slurm", "ray"],
    "trackers": ["tensorboard", "mlflow", "wandb", "comet"],
    "search": ["optuna", "hyperopt", "ray", "wandb"],
}


@cache
def template_source() -> Path:
    """A copy of the working tree without .git: Copier renders what is on disk, not the last tag or commit."""
    source = Path(mkdtemp(prefix="mlstack-template-"))
    listed = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", ".", ":!tests")
    for name in subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0"):
        if name and (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, source / name)
    return source


def setup_env() -> dict[str, str]:
    """The environment for `make setup`, with the framework's CPU build.

    PyTorch's comes from a folder of wheels where pip is configured with one, else from PyTorch's own index.
    """
    env = dict(os.environ, UV_PYTHON=sys.executable)
    # MAKEFLAGS carries the ARGS of this repository's make; without compiled files a start takes twice as long.
    make = ("MAKEFLAGS", "MAKEOVERRIDES", "MAKELEVEL", "ARGS")
    for name in ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", *make):
        env.pop(name, None)
    if "UV_FIND_LINKS" not in env:
        env["UV_FIND_LINKS"] = env.get("PIP_FIND_LINKS") or pip_setting("global.find-links")
    env.setdefault("TORCH_BACKEND", "" if env.get("UV_FIND_LINKS") else "cpu")
    env.setdefault("TF_BUILD", "cpu")
    return env


@cache
def pip_setting(name: str) -> str:
    pip = shutil.which("pip")
    return subprocess.run([pip, "config", "get", name], capture_output=True, text=True).stdout.strip() if pip else ""


def compile_once() -> None:
    """Keep what Jinja compiles: Copier brings it a thousand small templates a project, the same for each."""
    known: dict[object, Any] = {}
    compile_template = jinja2.Environment.compile

    def compile_new(self: jinja2.Environment, source: Any, *names: Any, **options: Any) -> Any:
        key = (type(self), self.lexer, *self.extensions, source, *names, *options.items())
        if key not in known:
            known[key] = compile_template(self, source, *names, **options)
        return known[key]

    jinja2.Environment.compile = compile_new  # type: ignore[method-assign]


compile_once()


@cache
def read_answers(text: str) -> dict[str, Any]:
    answers: dict[str, Any] = yaml.safe_load(text)
    return answers


def finished(done: subprocess.CompletedProcess[str], check: bool) -> subprocess.CompletedProcess[str]:
    if check and done.returncode:
        raise AssertionError(f"{done.args} exited {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done


@dataclass(frozen=True)
class Project:
    """A generated project."""

    path: Path

    @property
    def answers(self) -> dict[str, Any]:
        return read_answers((self.path / ".copier-answers.yml").read_text("utf-8"))

    @property
    def package(self) -> str:
        return str(self.answers["package_name"])

    @property
    def python(self) -> Path:
        """The project's own interpreter, once `make setup` has run."""
        return self.path / ".venv" / "bin" / "python"

    def files(self) -> list[str]:
        """Every file as a relative POSIX path, sorted, without what commands leave behind."""
        skip = {".git", ".venv", "runs", "__pycache__", ".ruff_cache", ".mypy_cache", ".pytest_cache"}
        found = (path.relative_to(self.path) for path in self.path.rglob("*") if path.is_file())
        return sorted(path.as_posix() for path in found if not skip & set(path.parts))

    def run(
        self, *command: str | Path, check: bool = True, timeout: float = 600, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in the project; a failure raises with everything it printed."""
        done = subprocess.run(
            [str(part) for part in command],
            cwd=self.path,
            env=setup_env() | dict(env or {}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        return finished(done, check)

    def make(self, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """`make TARGET VARIABLE=value ...` in the project."""
        return self.run("make", "--no-print-directory", *arguments, **options)

    def cli(self, *arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
        """`python -m PACKAGE ...` with the project's own interpreter."""
        return self.run(self.python, "-m", self.package, *arguments, **options)


def render(dest: Path, **answers: Any) -> Project:
    """Generate a project from the working tree; questions that are not answered take their defaults."""
    copier.run_copy(str(template_source()), dest, data=answers, defaults=True, quiet=True)
    return Project(dest)


@cache
def shared_project(framework: str = "pytorch", horovod: bool = False) -> Project:
    """A framework's project with all that a choice can bring, and its environment, kept until its needs change.

    For checks that need a project's dependencies but not its own installation: mypy, or a package found
    through PYTHONPATH.
    """
    with TemporaryDirectory(prefix="mlstack-shared-") as folder:
        fresh = render(Path(folder) / "project", framework=framework, **WIDE)
        key = sha256(sys.version.encode())
        install = ["launch/install_horovod.sh"] if horovod else []
        for name in ("pyproject.toml", "constraints.txt", "Makefile", *install):
            key.update((fresh.path / name).read_bytes())
        kept = Project(CACHE / "envs" / f"project-{key.hexdigest()[:16]}")
        kept.path.parent.mkdir(parents=True, exist_ok=True)
        with open(kept.path.with_suffix(".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # the workers of pytest-xdist come here at the same time
            if not (kept.path / ".ready").exists():
                shutil.rmtree(kept.path, ignore_errors=True)
                shutil.copytree(fresh.path, kept.path)
                kept.make("setup", timeout=1800)
                for script in install:  # built anew when the script changes, kept over all else
                    recipe = sha256((fresh.path / script).read_bytes()).hexdigest()[:16]
                    kept.run(script, timeout=3000, env={"XDG_CACHE_HOME": str(CACHE / f"horovod-{recipe}")})
                (kept.path / ".ready").touch()
    return kept

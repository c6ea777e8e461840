"""The programs of the engines tier that pip does not have: where they are, and how to get them (`make engines`)."""

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from support import CACHE, ROOT

PACKAGES = ROOT / "tests" / "engines" / "package.json"
NPM = CACHE / f"engines-{sha256(PACKAGES.read_bytes()).hexdigest()[:12]}"
COMPILER = ("g++", "cmake", "make")  # Debian's packages have the same names
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def find_browser() -> str | None:
    return next(filter(None, map(shutil.which, BROWSERS)), None)


def find_npm_tool(name: str) -> str | None:
    return shutil.which(name, path=NPM / "node_modules" / ".bin") if shutil.which("node") else None


# Debian's packages, and what of each the tests start.
SLURM = {"slurmctld": "slurmctld", "slurmd": "slurmd", "slurm-client": "sbatch", "munge": "munged"}


def find_slurm_program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")


def find_postgres_program(name: str) -> str | None:
    """Debian keeps PostgreSQL's programs off the path, in a folder of each version."""
    folders = sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin")), reverse=True)
    return shutil.which(name, path=":".join([*folders, os.environ["PATH"]]))


def missing_from_apt() -> Iterator[str]:
    if not find_browser():
        yield "chromium"
    if not any(Path("/usr/share/fonts").rglob("*.ttf")):
        yield "fonts-dejavu-core"
    if not shutil.which("node"):
        yield "nodejs"
    if not shutil.which("npm"):
        yield "npm"
    if not shutil.which("ssh"):
        yield "openssh-client"
    if not find_postgres_program("initdb"):
        yield "postgresql"
    if not shutil.which("wget"):
        yield "wget"
    yield from (name for name in COMPILER if not shutil.which(name))
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        yield "python3-dev"
    yield from (package for package, program in SLURM.items() if not find_slurm_program(program))


def install_from_apt(packages: list[str]) -> None:
    if not shutil.which("apt-get"):
        sys.exit(f"error: no apt-get here; install what it calls {', '.join(packages)}, then `make engines` again")
    apt = [*(["sudo"] if os.geteuid() else []), "apt-get", "-o", "DPkg::Lock::Timeout=300"]
    subprocess.run([*apt, "update", "--quiet=2"], check=True)
    subprocess.run([*apt, "install", "--quiet=2", "--yes", "--no-install-recommends", *packages], check=True)


def install_from_npm() -> None:
    new = NPM.with_suffix(f".{os.getpid()}")
    new.mkdir(parents=True)
    shutil.copy2(PACKAGES, new)
    try:
        subprocess.run(["npm", "install", "--silent", "--no-package-lock", "--prefix", new], check=True)
        new.rename(NPM)
    finally:
        shutil.rmtree(new, ignore_errors=True)


if __name__ == "__main__":
    if missing := list(missing_from_apt()):
        install_from_apt(missing)
    if not NPM.exists():
        install_from_npm()

"""compose.yaml of a project as processes on this machine, with ports and folders of here: what it says is what runs."""

import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import yaml

from distribution import free_ports
from programs import find_postgres_program
from support import CACHE, Project

VARIABLE = re.compile(r"\$\{(\w+)(?:(:-|:\?)([^}]*))?\}")
BIN = Path(sys.executable).parent


@dataclass
class Stack:
    """The services of a project's compose.yaml."""

    project: Project
    folder: Path
    env: dict[str, str]
    """What .env holds."""
    ports: dict[str, int]
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def uri(self) -> str:
        return f"http://localhost:{self.ports['mlflow']}"

    @property
    def has_accounts(self) -> bool:
        return "basic-auth" in (self.project.path / "compose.yaml").read_text("utf-8")

    @property
    def content(self) -> dict[str, Any]:
        """The file, filled in as Compose does, and then with what is different without containers."""
        text = VARIABLE.sub(self.fill_in, (self.project.path / "compose.yaml").read_text("utf-8"))
        for there, here in {
            "=0.0.0.0": "=127.0.0.1",
            "--port=5000": f"--port={self.ports['mlflow']}",
            "127.0.0.1:5000/": f"127.0.0.1:{self.ports['mlflow']}/",
            "@postgres/": f"@127.0.0.1:{self.ports['postgres']}/",
            "store:8333": f"127.0.0.1:{self.ports['store']}",
            "127.0.0.1:8333": f"127.0.0.1:{self.ports['store']}",
            "-ip=store": "-ip=127.0.0.1",
            "/data": str(self.folder / "data"),
            "/etc/mlflow": str(self.folder),
        }.items():
            text = text.replace(there, here)
        content: dict[str, Any] = yaml.safe_load(text)
        return content

    def fill_in(self, variable: re.Match[str]) -> str:
        name, kind, rest = variable.groups()
        if value := self.env.get(name, ""):
            return value
        assert kind == ":-", f"required variable {name} is missing a value: {rest}"
        return str(rest)

    def service(self, name: str) -> dict[str, Any]:
        service: dict[str, Any] = self.content["services"][name]
        return service

    def command(self, name: str) -> list[str | Path]:
        service = self.service(name)
        if name == "postgres":
            settings = {"-D": self.folder / "database", "-h": "127.0.0.1", "-p": self.ports[name], "-k": self.folder}
            return [postgres("postgres"), *(str(word) for pair in settings.items() for word in pair)]
        if name == "store":
            assert weed_version() == service["image"].rpartition(":")[2], "tested in another version"
            ports = (f"-s3.port={self.ports[name]}", f"-s3.port.grpc={self.ports['gRPC']}")  # it finds the others
            return [BIN / "weed", *service["command"], "-ip.bind=127.0.0.1", *ports]
        return [self.image / "bin" / service["command"][0], *service["command"][1:]]

    @property
    def image(self) -> Path:
        """An environment with what mlflow's image installs, by the same command; kept until that changes."""
        dockerfile = self.service("mlflow")["build"]["dockerfile_inline"]
        (recipe,) = re.findall(r"^RUN ((?:.*\\\n)*.*pip install(?:.*\\\n)*.*)", dockerfile, re.MULTILINE)
        pins = (self.project.path / "constraints.txt").read_bytes()
        kept = CACHE / "envs" / f"mlflow-{sha256(sys.version.encode() + recipe.encode() + pins).hexdigest()[:16]}"
        with open(kept.with_suffix(".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (kept / ".ready").exists():
                uv = shutil.which("uv") or str(BIN / "uv")
                subprocess.run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, kept], check=True)
                (kept / "constraints.txt").write_bytes(pins)
                install = f"{uv} pip install --quiet --compile-bytecode --python {kept}/bin/python "
                words = recipe.replace("/tmp/", f"{kept}/").replace("pip install --no-cache-dir ", install)
                subprocess.run(["sh", "-euc", words], check=True)
                (kept / ".ready").touch()
        return kept

    def environment(self, name: str) -> dict[str, str]:
        """No variable of this machine but where programs are."""
        path = f"{self.image / 'bin'}:{find_postgres_folder()}:{os.environ['PATH']}"
        here = {"PATH": path, "HOME": str(self.folder), "PGPORT": str(self.ports["postgres"])}
        return {**here, **self.service(name).get("environment", {})}

    def start(self, *names: str) -> None:
        """As `docker compose up --wait`."""
        for name in names:
            with (self.folder / f"{name}.log").open("ab") as log:
                self.running[name] = subprocess.Popen(
                    self.command(name),
                    cwd=self.folder,
                    env=self.environment(name),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    **(as_postgres() if name == "postgres" else {}),
                )
            deadline = time.monotonic() + 120
            while not self.is_healthy(name):
                log_end = (self.folder / f"{name}.log").read_text("utf-8", "replace")[-3000:]
                assert self.running[name].poll() is None and time.monotonic() < deadline, f"{name}: {log_end}"
                time.sleep(0.2)

    def is_healthy(self, name: str) -> bool:
        kind, *test = self.service(name)["healthcheck"]["test"]
        assert kind == "CMD"
        return not subprocess.run(test, env=self.environment(name), capture_output=True, timeout=30).returncode

    def stop(self, *names: str) -> None:
        """As `docker compose stop`."""
        for name in names:
            process = self.running.pop(name)
            process.send_signal(signal.SIGINT if name == "postgres" else signal.SIGTERM)  # the image's STOPSIGNAL
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def forget(self) -> None:
        """What is in no volume, as a new container would."""
        kept = {"data", "database", *(f"{name}.ini" for name in self.content.get("configs", {}))}
        for path in self.folder.iterdir():
            if path.name not in kept:
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def make_database(self) -> None:
        """As the image does at its first start."""
        settings, password = self.service("postgres")["environment"], self.folder / "password"
        password.write_text(settings["POSTGRES_PASSWORD"])
        words = ("--username", settings["POSTGRES_USER"], "--auth", "scram-sha-256", "--pwfile", password)
        run = {"check": True, "capture_output": True, "env": self.environment("postgres"), **as_postgres()}
        subprocess.run([postgres("initdb"), "-D", self.folder / "database", "--no-sync", *words], **run)
        single = (postgres("postgres"), "--single", "-D", self.folder / "database", "postgres")
        subprocess.run(single, input=f"CREATE DATABASE {settings['POSTGRES_USER']};\n".encode(), **run)


def postgres(program: str) -> str:
    found = find_postgres_program(program)
    assert found
    return found


def find_postgres_folder() -> Path:
    return Path(find_postgres_program("initdb") or "/nowhere").parent


def as_postgres() -> dict[str, Any]:
    """PostgreSQL refuses to run as root."""
    return {} if os.geteuid() else {"user": "postgres", "group": "postgres", "extra_groups": []}


def weed_version() -> str:
    said = subprocess.run([BIN / "weed", "version"], check=True, capture_output=True, text=True).stdout
    return said.split()[2]


@contextmanager
def stack(project: Project, env: dict[str, str]) -> Iterator[Stack]:
    """The services of a project, healthy; they end with the block."""
    folder = Path(mkdtemp(prefix="compose-", dir="/tmp"))  # open to the account postgres, as pytest's folders are not
    ports = dict(zip(("mlflow", "postgres", "store", "gRPC"), free_ports(4), strict=True))
    made = Stack(project, folder, env, ports)
    (folder / "data").mkdir()
    try:
        for name, config in made.content.get("configs", {}).items():
            (folder / f"{name}.ini").write_text(config["content"], "utf-8")
        if "postgres" in made.content["services"]:
            if not os.geteuid():
                shutil.chown(folder, "postgres")
            made.make_database()
        made.start(*sorted(made.content["services"], key=lambda name: name == "mlflow"))
        yield made
    finally:
        for process in made.running.values():
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)

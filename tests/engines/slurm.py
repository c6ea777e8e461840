"""A Slurm cluster on this machine, as children of the test: two nodes, whose GPUs are GPUs in name alone."""

import os
import re
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from getpass import getuser
from pathlib import Path
from tempfile import mkdtemp

from distribution import free_ports
from programs import find_slurm_program

# As whoever runs the tests, on loopback, with all state in one folder; the machine's own Slurm, if any, is left alone.
CONFIG = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=2,bf_interval=2
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
GresTypes=gpu
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=8 RealMemory=2000 Gres=gpu:2
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=8 RealMemory=2000 Gres=gpu:2
PartitionName=normal Nodes=n1,n2 Default=YES State=UP GraceTime=60
PartitionName=urgent Nodes=n1,n2 State=UP PriorityTier=2 PreemptMode=OFF
"""
GPUS = "NodeName=n[1-2] Name=gpu File={folder}/gpu[0-1]\n"


@dataclass(frozen=True)
class Slurm:
    """A running cluster."""

    folder: Path

    @property
    def env(self) -> dict[str, str]:
        return {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def control(self, *command: str, check: bool = True) -> str:
        done = subprocess.run(command, env=os.environ | self.env, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 or not check, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout.strip()

    def job(self, job: str) -> dict[str, str]:
        """What Slurm says of a job, such as JobState and Restarts."""
        return dict(re.findall(r"(\w+)=(\S*)", self.control("scontrol", "show", "job", "--oneliner", job)))

    def wait_until(self, holds: Callable[[], bool], what: str, seconds: float = 180) -> None:
        deadline = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < deadline, f"{what}: not within {seconds} s\n{self.read_logs()}"
            time.sleep(0.05)

    def read_logs(self) -> str:
        logs = sorted(self.folder.glob("*.log"))
        return "\n".join(f"{log.name}:\n{log.read_text('utf-8', 'replace')[-3000:]}" for log in logs)


@contextmanager
def cluster() -> Iterator[Slurm]:
    """A cluster with two idle nodes, which ends with the block."""
    slurm = Slurm(Path(mkdtemp(prefix="slurm-", dir="/tmp")))  # short: a socket's path has 107 characters at most
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, slurm.folder, ignore_errors=True)
        write_files(slurm.folder)
        paths = [f"--{name}={slurm.folder}/munge.{name.removesuffix('-file')}" for name in MUNGE]
        stack.enter_context(daemon(slurm, "munged", "--foreground", "--force", *paths))
        slurm.wait_until(lambda: (slurm.folder / "munge.socket").exists(), "munged answers", 30)
        stack.enter_context(daemon(slurm, "slurmctld", "-D"))
        for node in ("n1", "n2"):
            stack.enter_context(daemon(slurm, "slurmd", "-D", "-N", node))
        states = ("sinfo", "--noheader", "--partition", "normal", "--Node", "--format", "%T")
        slurm.wait_until(lambda: slurm.control(*states, check=False).split() == ["idle"] * 2, "two idle nodes", 60)
        try:
            yield slurm
        finally:
            slurm.control("scancel", "--user", getuser())
            slurm.wait_until(lambda: not slurm.control("squeue", "--noheader"), "no job is left", 90)


MUNGE = ("socket", "key-file", "pid-file", "seed-file", "log-file")


def write_files(folder: Path) -> None:
    values = {"folder": folder, "host": socket.gethostname(), "user": getuser(), "ports": free_ports(3)}
    (folder / "slurm.conf").write_text(CONFIG.format(**values))
    (folder / "gres.conf").write_text(GPUS.format(**values))
    for gpu in ("gpu0", "gpu1"):
        (folder / gpu).symlink_to("/dev/null")
    for name in ("state", "n1", "n2"):
        (folder / name).mkdir()
    (folder / "munge.key").touch(0o600)
    (folder / "munge.key").write_bytes(secrets.token_bytes(128))


@contextmanager
def daemon(slurm: Slurm, program: str, *options: str) -> Iterator[None]:
    command = [find_slurm_program(program) or program, *options]
    with (slurm.folder / f"{program}{options[-1][-3:]}.log").open("wb") as log:
        process = subprocess.Popen(command, env=os.environ | slurm.env, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

"""What this machine has to train on, and whether the installed TensorFlow fits it."""

import argparse
import os
import shutil
import subprocess
from pathlib import Path

import tensorflow as tf

from .distributed import capability, choose_device, choose_precision, describe_gpu, gpus


def main(args: argparse.Namespace) -> None:
    device = choose_device("auto")
    print(f"TensorFlow {tf.__version__} on {device}, {os.cpu_count()} CPU cores, {memory()}")
    print(f"precision {choose_precision('auto', device)}: {why(device)}")
    memories = read_memories()
    idle = [index for index, gpu in enumerate(gpus()) if describe(index, gpu, memories)]
    if gpus():
        print(f"free GPUs: {', '.join(map(str, idle)) or 'none'}")
    if 0 < len(idle) < len(gpus()):
        print(f"  train on one of these: CUDA_VISIBLE_DEVICES={idle[0]}")
    if device == "cpu" and (hint := unused_gpu()):
        print(hint)


def describe(index: int, gpu: tf.config.PhysicalDevice, memories: list[tuple[int, int]]) -> bool:
    """Print what there is to know about a GPU; returns whether nobody else uses it."""
    free, total = memories[index] if index < len(memories) else (0, 0)
    idle = free > 0.9 * total
    sizes = f", {free / 1024:.1f} of {total / 1024:.1f} GiB free, {'free' if idle else 'in use'}" if total else ""
    print(f"cuda:{index} {describe_gpu(gpu)}{sizes}")
    architectures = list(tf.sysconfig.get_build_info().get("cuda_compute_capabilities", []))
    if not has_kernels(capability(gpu), architectures):
        print(f"  this build has no kernels for it (only {', '.join(architectures)}): it needs another TensorFlow")
    return idle


def memory() -> str:
    if not hasattr(os, "sysconf"):  # Windows
        return "memory unknown"
    return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.1f} GiB"


def why(device: str) -> str:
    if device == "cpu":
        return "bf16 and fp16 are slower than fp32 on most CPUs"
    major, minor = capability(gpus()[0])
    return f"compute capability {major}.{minor}; bf16 from 8.0 on, fp16 on 7.x and 6.0, else fp32"


def has_kernels(version: tuple[int, int], architectures: list[str]) -> bool:
    """Whether a build for these architectures runs on a GPU: the same major version, no later minor, or PTX."""
    for architecture in architectures:
        kind, _, number = architecture.partition("_")
        if not number.isdigit():  # gfx..., of ROCm, which names its devices otherwise
            return True
        built = divmod(int(number), 10)
        if (kind == "sm" and built[0] == version[0] and built[1] <= version[1]) or (
            kind == "compute" and built <= version
        ):
            return True
    return False


def read_memories() -> list[tuple[int, int]]:
    """Free and total MiB of each NVIDIA GPU that may be used, as its driver says; none where it says nothing."""
    query = ["nvidia-smi", "--query-gpu=index,memory.free,memory.total", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True)
        rows = [tuple(int(cell) for cell in line.split(",")) for line in done.stdout.splitlines()]
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(str(row[0]) for row in rows))
        return [(free, total) for index, free, total in rows if str(index) in visible.split(",")]
    except (OSError, ValueError, subprocess.SubprocessError):
        return []


def unused_gpu() -> str:
    """What to do about a GPU that is there and that TensorFlow does not see."""
    if Path("/dev/nvidiactl").exists() or shutil.which("nvidia-smi"):
        if not tf.test.is_built_with_cuda():
            return "an NVIDIA driver is here, but this is TensorFlow's CPU build: make setup TF_BUILD=cuda"
        return "an NVIDIA driver is here, but TensorFlow sees no GPU: make setup TF_BUILD=cuda brings CUDA's libraries"
    if Path("/proc/driver/nvidia/version").exists():
        return "the host has an NVIDIA GPU, but this container does not: start it with --gpus all (docs/guide.md, GPUs)"
    return ""

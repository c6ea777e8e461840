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
    for index, gpu in enumerate(gpus()):
        print(f"cuda:{index} {describe_gpu(gpu)}")
        built = list(tf.sysconfig.get_build_info().get("cuda_compute_capabilities", []))
        if not has_kernels(capability(gpu), built):
            print(f"  this build has no kernels for it (only {', '.join(built)}); it starts slowly, or not at all")
    memories = read_memories()
    idle = [index for index, (free, total) in memories.items() if free > 0.9 * total]
    for index, (free, total) in memories.items():
        print(f"GPU {index}: {free / 1024:.1f} of {total / 1024:.1f} GiB free, {'free' if index in idle else 'in use'}")
    if memories and gpus():
        print(f"free GPUs: {', '.join(map(str, idle)) or 'none'}")
    if gpus() and 0 < len(idle) < len(memories):
        print(f"  train on one of these: CUDA_VISIBLE_DEVICES={idle[0]}")
    if device == "cpu" and (hint := unused_gpu()):
        print(hint)


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
    if version == (0, 0) or not architectures:  # AMD, which names its devices otherwise
        return True
    for architecture in architectures:
        kind, _, number = architecture.partition("_")
        built = divmod(int(number), 10)
        if (kind == "sm" and built[0] == version[0] and built[1] <= version[1]) or (
            kind == "compute" and built <= version
        ):
            return True
    return False


def read_memories() -> dict[int, tuple[int, int]]:
    """Free and total MiB of each NVIDIA GPU, as its driver says."""
    query = ["nvidia-smi", "--query-gpu=index,memory.free,memory.total", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return {}
    rows = [[int(cell) for cell in line.split(",")] for line in done.stdout.splitlines()]
    return {index: (free, total) for index, free, total in rows}


def unused_gpu() -> str:
    """What to do about a GPU that is there and that TensorFlow does not see."""
    if Path("/dev/nvidiactl").exists() or shutil.which("nvidia-smi"):
        if not tf.test.is_built_with_cuda():
            return "an NVIDIA driver is here, but this is TensorFlow's CPU build: make setup TF_BUILD=cuda"
        return "an NVIDIA driver is here, but TensorFlow sees no GPU: make setup TF_BUILD=cuda brings CUDA's libraries"
    if Path("/proc/driver/nvidia/version").exists():
        return "the host has an NVIDIA GPU, but this container does not: start it with --gpus all (docs/guide.md, GPUs)"
    return ""

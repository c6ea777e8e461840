"""What this machine has to train on, and whether the installed PyTorch fits it."""

import argparse
import os
import shutil
import subprocess
from pathlib import Path

import torch

from .distributed import choose_device, choose_precision


def main(args: argparse.Namespace) -> None:
    device = choose_device("auto", 0)
    print(f"PyTorch {torch.__version__} on {device}, {os.cpu_count()} CPU cores, {memory(device)}")
    print(f"precision {choose_precision('auto', device)}: {why(device)}")
    count = torch.cuda.device_count()
    idle = [index for index in range(count) if describe_gpu(index)]
    if count:
        print(f"free GPUs: {', '.join(map(str, idle)) or 'none'}")
    if 0 < len(idle) < count:
        print(f"  train on these alone: CUDA_VISIBLE_DEVICES={','.join(map(str, idle))}")
    if device.type == "cpu" and (hint := unused_gpu()):
        print(hint)


def describe_gpu(index: int) -> bool:
    """Print what there is to know about a GPU; returns whether nobody else uses it."""
    free, total = (size / 2**30 for size in torch.cuda.mem_get_info(index))
    idle = free > 0.9 * total  # this process takes some hundred MiB itself
    name, use = torch.cuda.get_device_name(index), "free" if idle else "in use"
    print(f"cuda:{index} {name}, {free:.1f} of {total:.1f} GiB free, {use}")
    if not has_kernels(torch.cuda.get_device_capability(index), torch.cuda.get_arch_list()):
        print(f"  this build has no kernels for it (only {', '.join(torch.cuda.get_arch_list())});")
        print("  install one that has: make setup TORCH_BACKEND=auto")
    return idle


def memory(device: torch.device) -> str:
    """What the processor has, and an Apple GPU may take of it."""
    if device.type == "mps":
        return f"{torch.mps.recommended_max_memory() / 2**30:.1f} GiB for the GPU"
    if not hasattr(os, "sysconf"):  # Windows
        return "memory unknown"
    return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.1f} GiB"


def why(device: torch.device) -> str:
    if device.type == "cpu":
        return "bf16 and fp16 are slower than fp32 on most CPUs"
    if device.type == "mps":
        return "the others are not tested on Apple's GPUs"
    major, minor = torch.cuda.get_device_capability(device)
    return f"compute capability {major}.{minor}; bf16 from 8.0 on, fp16 on 7.x and 6.0, else fp32"


def has_kernels(capability: tuple[int, int], architectures: list[str]) -> bool:
    """Whether a build for these architectures runs on a GPU: the same major version, no later minor, or PTX."""
    major, minor = capability
    for architecture in architectures:
        kind, _, number = architecture.partition("_")
        if not number.rstrip("af").isdigit():  # gfx..., of ROCm, which names its devices otherwise
            return True
        built = divmod(int(number.rstrip("af")), 10)
        if (kind == "sm" and built[0] == major and built[1] <= minor) or (kind == "compute" and built <= capability):
            return True
    return False


def unused_gpu() -> str:
    """What to do about a GPU that is there and that PyTorch does not see."""
    if Path("/dev/nvidiactl").exists() or shutil.which("nvidia-smi"):
        try:
            seen = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=20).stdout.strip()
        except (OSError, subprocess.TimeoutExpired):
            seen = ""
        if torch.version.cuda is None:
            return "an NVIDIA driver is here, but this is PyTorch's CPU build: make setup TORCH_BACKEND=auto"
        return f"an NVIDIA driver is here, but PyTorch sees no GPU (nvidia-smi says: {seen or 'nothing'})"
    if Path("/proc/driver/nvidia/version").exists():
        return "the host has an NVIDIA GPU, but this container does not: start it with --gpus all (docs/guide.md, GPUs)"
    return ""

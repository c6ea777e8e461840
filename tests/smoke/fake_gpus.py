"""Run the `hardware` command on GPUs that PyTorch is made to see. Runs in a project's environment.

fake_gpus.py PACKAGE '[[free, total, major, minor], ...]' 'sm_80 sm_90'       GiB; compute capability; the build's
fake_gpus.py PACKAGE '[]' '' FILE...                                          only these files of the driver exist
"""

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

package, gpus, architectures = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3].split()
files: Any = Path
torch.cuda.is_available = lambda: bool(gpus)
torch.cuda.device_count = lambda: len(gpus)
torch.cuda.set_device = lambda device: None
torch.cuda.is_bf16_supported = lambda including_emulation=True: gpus[0][2] >= 8
torch.cuda.get_arch_list = lambda: architectures
torch.cuda.get_device_name = lambda device: "Fake GPU"
torch.cuda.get_device_capability = lambda device: tuple(gpus[getattr(device, "index", device)][2:])
torch.cuda.mem_get_info = lambda index: tuple(int(size * 2**30) for size in gpus[index][:2])
files.exists = lambda path: str(path) in sys.argv[4:]
sys.exit(import_module(f"{package}.cli").main(["hardware"]))

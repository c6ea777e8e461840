"""Run the `hardware` command on GPUs that TensorFlow is made to see. Runs in a project's environment.

    fake_gpus_tensorflow.py PACKAGE '[[free, total, major, minor], ...]' 'sm_80 sm_90'
    fake_gpus_tensorflow.py PACKAGE '[]' '' FILE...

As fake_gpus.py: GiB; the compute capability; what the build is for; which of the driver's files alone exist.
"""

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

package, gpus, architectures = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3].split()
import_module(package)
import tensorflow as tf  # noqa: E402


def nvidia_smi(command: list[str], **_: object) -> "subprocess.CompletedProcess[str]":
    assert command[0] == "nvidia-smi"
    if not gpus:
        raise FileNotFoundError(command[0])
    rows = [f"{index}, {int(free * 1024)}, {int(total * 1024)}" for index, (free, total, *_) in enumerate(gpus)]
    return subprocess.CompletedProcess(command, 0, "\n".join(rows), "")


devices = [tf.config.PhysicalDevice(f"/physical_device:GPU:{index}", "GPU") for index in range(len(gpus))]
tf.config.list_physical_devices = lambda kind=None: devices
tf.config.experimental.get_device_details = lambda device: {
    "device_name": "Fake GPU",
    "compute_capability": tuple(gpus[devices.index(device)][2:]),
}
tf.sysconfig.get_build_info = lambda: {"cuda_compute_capabilities": architectures}
subprocess.run = nvidia_smi  # type: ignore[assignment]
Path.exists = lambda path: str(path) in sys.argv[4:]  # type: ignore[method-assign, assignment]
sys.exit(import_module(f"{package}.cli").main(["hardware"]))

"""What the command line must know of PyTorch before it imports it."""

from pathlib import Path

NAME = "PyTorch"
THREADS = "OMP_NUM_THREADS"  # the variable that says how many an operation may take
CHECKPOINT_SUFFIX = ".pt"
EXPORT_FORMATS = ("onnx", "pt2", "torchscript")
BUILT_IN = ("auto", "ddp", "fsdp", "tensor")
STRATEGIES = BUILT_IN + tuple(sorted(file.stem for file in Path(__file__).parent.glob("strategies/*.py")))
RESTART_COUNT = "TORCHELASTIC_RESTART_COUNT"  # where torchrun says how often it has started the processes anew

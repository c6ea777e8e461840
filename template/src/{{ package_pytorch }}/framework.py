"""What the command line must know of PyTorch before it imports it."""

NAME = "PyTorch"
CHECKPOINT_SUFFIX = ".pt"
EXPORT_FORMATS = ("onnx", "pt2", "torchscript")
RESTART_COUNT = "TORCHELASTIC_RESTART_COUNT"  # where torchrun says how often it has started the processes anew

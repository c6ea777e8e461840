"""What the command line must know of TensorFlow before it imports it, and how it is imported: without its log."""

import importlib.util
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

NAME = "TensorFlow"
THREADS = "TF_NUM_INTRAOP_THREADS"  # the variable that says how many an operation may take
CHECKPOINT_SUFFIX = ".npz"
EXPORT_FORMATS = ("onnx", "savedmodel")
BUILT_IN = ("auto", "mirrored", "multiworker")
STRATEGIES = BUILT_IN + tuple(sorted(file.stem for file in Path(__file__).parent.glob("strategies/*.py")))
RESTART_COUNT = "RESTART_COUNT"  # where a launcher may say how often it has started the process anew

os.environ["KERAS_BACKEND"] = "tensorflow"


class QuietImport(MetaPathFinder):
    """TensorFlow 2.21 writes lines while it is imported that its own variable for this does not stop."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != "tensorflow":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_quietly(module: ModuleType) -> None:
                with without_stderr():
                    load(module)

            spec.loader.exec_module = load_quietly  # type: ignore[method-assign]
        return spec


@contextmanager
def without_stderr() -> Iterator[None]:
    """Nothing reaches the terminal, also from C++."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


if "TF_CPP_MIN_LOG_LEVEL" not in os.environ:  # 0 shows all
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    sys.meta_path.insert(0, QuietImport())

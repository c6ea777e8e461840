"""Print how far an exported model is from its checkpoint on the test set. Runs in a project's environment.

The exported file is read by its own library alone, not by the project's code.
"""

import json
import sys
import warnings
from importlib import import_module
from pathlib import Path

import numpy as np
import onnxruntime  # type: ignore[import-not-found, unused-ignore]
import torch

package, run, form, checkpoint = sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4]
Run = import_module(f"{package}.run").Run
config, task, model, _ = import_module(f"{package}.checkpoint").load_model(Run(run), checkpoint)
examples = import_module(f"{package}.data").build_datasets(config.data).test
images = examples.read(np.arange(len(examples)), None)["image"]
model.eval()
with torch.inference_mode():
    expected = task.predict(model, {"image": torch.from_numpy(images)})["probabilities"].numpy()
    if form == "onnx":
        (got,) = onnxruntime.InferenceSession(run / "model.onnx").run(["probabilities"], {"image": images})
    elif form == "pt2":
        (got,) = torch.export.load(run / "model.pt2").module()(torch.from_numpy(images))
    else:
        warnings.simplefilter("ignore", DeprecationWarning)
        (got,) = torch.jit.load(run / "model.torchscript.pt")(torch.from_numpy(images))  # type: ignore[no-untyped-call, unused-ignore]
difference, spread = np.abs(np.asarray(got) - expected).max(), np.ptp(expected, axis=0).max()
print(json.dumps({"examples": len(images), "difference": float(difference), "spread": float(spread)}))

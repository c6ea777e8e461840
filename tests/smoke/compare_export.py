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

package, run, form, checkpoint = sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4]
Run = import_module(f"{package}.run").Run
config, task, model, _ = import_module(f"{package}.checkpoint").load_model(Run(run), checkpoint)
examples = import_module(f"{package}.data").build_datasets(config.data).test
images = examples.read(np.arange(len(examples)), None)["image"]
backend = import_module(f"{package}.backend")
with backend.inference(model):
    expected = backend.to_numpy(task.predict(model, backend.to_tensors({"image": images}))["probabilities"])
if form == "onnx":
    (got,) = onnxruntime.InferenceSession(run / "model.onnx").run(["probabilities"], {"image": images})
elif form == "savedmodel":
    import tensorflow as tf

    loaded = tf.saved_model.load(run / "savedmodel")
    got = loaded.signatures["serving_default"](image=tf.constant(images))["probabilities"]
else:
    import torch

    warnings.simplefilter("ignore", DeprecationWarning)
    with torch.inference_mode():
        if form == "pt2":
            (got,) = torch.export.load(run / "model.pt2").module()(torch.from_numpy(images))
        else:
            (got,) = torch.jit.load(run / "model.torchscript.pt")(torch.from_numpy(images))  # type: ignore[no-untyped-call, unused-ignore]
difference, spread = np.abs(np.asarray(got) - expected).max(), np.ptp(expected, axis=0).max()
print(json.dumps({"examples": len(images), "difference": float(difference), "spread": float(spread)}))

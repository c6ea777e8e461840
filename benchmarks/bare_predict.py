"""The floor of the `predict` command: a script that does nothing but predict one grey picture.

python bare_predict.py MODEL PICTURE
"""

import sys

import numpy as np
import onnxruntime as ort
from PIL import Image

session = ort.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
image = np.asarray(Image.open(sys.argv[2]).convert("L"), np.float32)[None, :, :, None] / 255
probabilities = session.run(None, {"image": image})[0][0]
print(sys.argv[2], probabilities.argmax(), probabilities.max())

"""Write a few of scikit-learn's test digits as pictures into a folder. Runs in a project's environment."""

import sys
from pathlib import Path

from PIL import Image
from sklearn.datasets import load_digits

folder = Path(sys.argv[1])
folder.mkdir()
digits = load_digits()
for index in range(-10, 0):
    pixels = (digits.images[index] / 16 * 255).astype("uint8")
    Image.fromarray(pixels).save(folder / f"a-{digits.target[index]}-number{index + 11:02}.png")

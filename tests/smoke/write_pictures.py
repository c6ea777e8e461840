"""Write pictures in many formats into a folder. Runs in a project's environment."""

import sys
from pathlib import Path

import numpy as np
from PIL import Image

folder, kind = Path(sys.argv[1]), sys.argv[2]
draw = np.random.default_rng(0)


def stripes(label: str, size: tuple[int, int]) -> Image.Image:
    """Noise with stripes, which lie or stand according to the label."""
    width, height = size
    rows, columns = np.mgrid[:height, :width]
    waves = np.sin((rows if label == "lying" else columns) * 0.8) * 80 + 128
    pixels = np.clip(waves[..., None] + draw.normal(0, 10, (height, width, 3)), 0, 255)
    return Image.fromarray(pixels.astype(np.uint8))


def write(path: Path, image: Image.Image, form: str) -> None:
    """One picture as the form says: a mode, and the suffix of a format."""
    mode, suffix = form.split(".")
    if mode == "I;16":
        image = Image.fromarray(np.asarray(image.convert("L")).astype(np.uint16) * 257)
    elif mode == "P":
        image = image.quantize(64)
    else:
        image = image.convert(mode)
    image.save(path.with_suffix(f".{suffix}"))


FORMS = ["L.png", "RGB.png", "RGBA.png", "LA.png", "P.png", "P.gif", "I;16.png", "I;16.tif", "1.bmp"]
FORMS += ["RGB.jpg", "L.jpeg", "CMYK.jpg", "RGB.webp", "RGBA.webp", "RGB.tiff", "RGB.bmp"]
SIZES = ((7, 31), (16, 16), (33, 20), (100, 60), (1, 1))
if kind == "one":
    folder.mkdir()
    write(folder / "good", stripes("lying", (8, 8)), "L.png")
else:
    first, last = map(int, kind.split("-"))
    for label in ("lying", "standing"):
        (folder / label).mkdir(parents=True, exist_ok=True)
        for number in range(first, last):
            size = SIZES[number % len(SIZES)]
            write(folder / label / f"{number:03}", stripes(label, size), FORMS[number % len(FORMS)])

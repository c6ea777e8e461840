"""Pictures as arrays: the same for training and for prediction, so that the two never drift apart."""

import warnings
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"})


class ImageError(ValueError):
    """The file is not a picture, is damaged, or is too large to open safely."""


def read_image(source: Path | IO[bytes], shape: tuple[int, int, int]) -> NDArray[np.float32]:
    """Read a picture, grey or colour and of any size, as float32[height, width, channels] in [0, 1].

    It is turned as its camera says, and transparency is laid on white. Raises ImageError, whose text names the file,
    of an upload by its own name.
    """
    height, width, channels = shape
    name = source if isinstance(source, Path) else getattr(source, "name", "the picture")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(source) as file:
                image = _upright(file).convert("L" if channels == 1 else "RGB")
                image = image.resize((width, height), Image.Resampling.BILINEAR)
    except FileNotFoundError:
        raise ImageError(f"{name}: no such file") from None
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        reason = str(error).split("\n")[0]
        if isinstance(error, UnidentifiedImageError):
            reason = "the file is empty" if _is_empty(source) else "of no format that is known here"
        raise ImageError(f"{name}: not a readable picture ({reason})") from None
    return np.asarray(image, dtype=np.float32).reshape(shape) / np.float32(255)


def _is_empty(source: Path | IO[bytes]) -> bool:
    return (source.stat().st_size if isinstance(source, Path) else source.seek(0, 2)) == 0


def _upright(file: Image.Image) -> Image.Image:
    image = ImageOps.exif_transpose(file)
    if image.mode in ("I", "F"):
        raise ValueError("32 bits a channel have no known range")
    if image.mode.startswith("I;16"):
        return image.point(lambda value: value / 257).convert("L")
    if not image.has_transparency_data:
        return image
    layer = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer)

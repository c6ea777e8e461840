"""Print the pictures of each split of an image folder. Runs in a project's environment."""

import json
import sys
from importlib import import_module
from pathlib import Path

package, folder = sys.argv[1], Path(sys.argv[2])
settings = import_module(f"{package}.settings").DataSettings(source="image-folder", folder=folder)
datasets = import_module(f"{package}.data").build_datasets(settings)
names = {}
for split in ("train", "val", "test"):
    names[split] = sorted(str(picture.path.relative_to(folder)) for picture in getattr(datasets, split).pictures)
print(json.dumps(names))

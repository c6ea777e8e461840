"""Write, in a file a process, what a project's HorovodRuntime makes of gradients that some processes lack."""

import importlib
import json
import os
import sys
from pathlib import Path

import torch

package, folder = sys.argv[1:]
RANK = int(os.environ["RANK"])
runtime_class = importlib.import_module(f"{package}.strategies.horovod").RUNTIME
runtime = runtime_class(RANK, int(os.environ["WORLD_SIZE"]), torch.device("cpu"), "fp32")
runtime.join()
model = torch.nn.ParameterDict({name: torch.nn.Parameter(torch.ones(2)) for name in ("both", "one", "none")})
model["wide"] = torch.nn.Parameter(torch.ones(2, dtype=torch.float64))
model["frozen"] = torch.nn.Parameter(torch.ones(2), requires_grad=False)
for name in ("both", "wide", *(["one"] if RANK == 1 else [])):
    model[name].grad = torch.full_like(model[name], 2.0 + 4 * RANK)
runtime.reduce_gradients(model)
found = {name: None if weight.grad is None else weight.grad.tolist() for name, weight in model.items()}
Path(folder, f"{RANK}.json").write_text(json.dumps(found))
runtime.leave()

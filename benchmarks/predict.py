"""Predictor.predict against onnxruntime's session alone, in one process. Runs in a project's environment; prints JSON.

python predict.py RUN --repeats 31
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path

from my_model.predictor import Predictor

from measure import Sample, clock, interleave

CALLS = 500


def block(call: Callable[[], object]) -> Callable[[], Sample]:
    return lambda: clock(lambda: [call() for _ in range(CALLS)], CALLS)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("run", type=Path)
    parser.add_argument("--repeats", type=int, required=True)
    args = parser.parse_args()
    predictor = Predictor(args.run)
    feed = predictor.signature.sample(1)
    names = [item.name for item in predictor.signature.outputs]
    variants = {
        "ours": block(lambda: predictor.predict(feed)),
        "floor": block(lambda: predictor.session.run(names, feed)),
        "floor again": block(lambda: predictor.session.run(names, feed)),
    }
    print(json.dumps(interleave("predict one picture in process", variants, args.repeats)))


if __name__ == "__main__":
    main()

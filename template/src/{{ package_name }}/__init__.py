"""The package of this project; `python -m <package> --help` lists its commands."""

from . import framework as framework  # first: what it sets must be set before the framework is imported

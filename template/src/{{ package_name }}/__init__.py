"""The package of this project; `python -m <package> --help` lists its commands."""

"""How long this package and its peers take, side by side: `python -m benchmarks`, which `make
bench` calls in an environment of its own.
"""

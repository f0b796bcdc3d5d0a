"""Benchmarks: a round of ours beside PyTorch's and beside what the machine allows.

Nothing heavy is imported here; :mod:`benchmarks.bench.run` runs a :class:`benchmarks.bench.grid.Grid`.
"""

"""Benchmarks: a round of ours beside PyTorch's and beside what the machine allows.

Nothing heavy is imported here; :mod:`cgpfl.bench.run` runs a :class:`cgpfl.bench.plan.Plan`.
"""

"""Benchmarks: one file per comparison. ``python -m benchmarks`` runs all, ``python -m benchmarks j4`` one."""

"""Speed and memory compared with plain PyG; run by ``make bench`` or ``python -m benchmarks``."""

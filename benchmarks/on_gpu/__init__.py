"""What benchmarks/gpu.py measures (attention, products) and how (measure)."""

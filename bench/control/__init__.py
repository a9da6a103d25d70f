"""The control plane of clusters that are too large for one machine, in one process: `python -m bench.control`."""

"""Protocol adapters: they translate and nothing else."""

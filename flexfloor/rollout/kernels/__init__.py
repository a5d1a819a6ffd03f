"""A rollout's operators between its matrix products: PyTorch's, or compiled loops in their place."""

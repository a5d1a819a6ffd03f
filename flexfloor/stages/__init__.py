"""The stages of a step, each a function of the worker that all ranks call together."""

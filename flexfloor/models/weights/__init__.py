"""Weights of Hugging Face folders in and out: maps of names, files of safetensors, import, export."""

"""Prompts: from files or generated tasks, rendered into tokens, named, and dealt into batches."""

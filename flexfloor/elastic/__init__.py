"""Expert parallelism whose group and placement can change while generating."""

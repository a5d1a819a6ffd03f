"""The update: advantages, losses, packed micro-batches, and one optimizer step at the join."""

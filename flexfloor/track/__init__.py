"""What a run tells: metrics on disk, in W&B and on the console."""

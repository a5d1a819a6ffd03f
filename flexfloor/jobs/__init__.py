"""What a command does with a configuration: here, as a rank of a launcher, as a job of Slurm, as a sweep."""

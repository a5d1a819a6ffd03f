"""`flexfloor convert`: between Hugging Face folders and FlexFloor's checkpoints."""

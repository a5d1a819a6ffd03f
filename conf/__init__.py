"""Hydra configuration groups shipped with FlexFloor."""

"""FlexFloor: RL post-training of mixture-of-experts models whose rollout releases its workers."""

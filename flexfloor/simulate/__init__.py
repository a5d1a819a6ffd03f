"""What a rollout schedule would do on a cluster that is not there: modelled hardware, real decisions."""

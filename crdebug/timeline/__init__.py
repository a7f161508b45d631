"""The history of a job: what its ranks' MPI calls were, and how to come back to any of them."""

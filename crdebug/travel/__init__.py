"""Going back and forth in the history of a recorded job."""

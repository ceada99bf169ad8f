"""Pure scheduling decisions: no threads, no wall clock."""

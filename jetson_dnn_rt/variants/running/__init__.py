"""From a variant name to the stages that run."""

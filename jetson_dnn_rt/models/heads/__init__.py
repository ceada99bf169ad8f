"""From raw outputs to boxes and masks."""

"""From message to first layer."""

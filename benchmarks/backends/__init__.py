"""The networks on every back end."""

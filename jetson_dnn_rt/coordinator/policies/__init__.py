"""The policies, one a file."""

"""What a user may set, as frozen dataclasses: defaults, units and ranges stand here only."""

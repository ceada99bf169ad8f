"""User settings as frozen dataclasses: the only place of their defaults, units and ranges."""

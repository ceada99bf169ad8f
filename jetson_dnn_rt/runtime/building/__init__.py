"""Building of variants while the others run."""

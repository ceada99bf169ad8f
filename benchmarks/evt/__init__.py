"""Bounds of the worst case against known laws."""

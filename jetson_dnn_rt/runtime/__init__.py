"""Drives the scheduling engine with worker threads and the steady clock."""

"""Many DNNs at once: processes, a paper's queue, and this package."""

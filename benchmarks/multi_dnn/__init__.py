"""Many DNNs at once: processes, the queue of a paper, ours."""

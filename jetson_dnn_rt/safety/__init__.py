"""Protection against harmful files and messages, and against faults."""

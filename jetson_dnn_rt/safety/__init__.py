"""What keeps files, messages and faults of others from doing harm."""

"""Built variants on disk, with their figures."""

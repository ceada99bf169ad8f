"""Job traces and the statistics that are kept while running."""

"""The report of a trace: figures, words and one HTML page."""

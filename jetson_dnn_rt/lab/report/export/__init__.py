"""Traces as CSV, XLSX and Perfetto JSON."""

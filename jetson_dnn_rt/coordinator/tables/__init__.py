"""Profile tables: times, energy and accuracy of variants and clocks."""

"""The table and the figures of paper 000."""

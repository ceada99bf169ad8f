"""The table of paper 003."""

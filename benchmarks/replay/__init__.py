"""A long bag through evaluate."""

"""All policies on simulated boards."""

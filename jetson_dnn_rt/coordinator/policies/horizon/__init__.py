"""The horizon policy: plans the next frames of the whole cohort."""

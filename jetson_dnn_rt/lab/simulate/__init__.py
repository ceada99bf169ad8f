"""The scheduling engine and the coordinator under a virtual clock, in a modelled world."""

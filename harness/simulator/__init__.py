"""Simulated backends: one pure core, served on loopback by the wall clock."""

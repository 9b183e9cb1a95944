"""Formulas, one short function each."""

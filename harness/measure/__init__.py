"""Timelines to records to numbers to a verdict; pure."""

"""A load-testing harness that measures whole agent tasks, not requests."""

__version__ = "0.1.0"

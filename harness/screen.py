"""Where text for a person goes: a terminal, a file or a pipe."""

import os

from rich.console import Console


class Screen(Console):
    """Falls silent when nobody reads any more: neither the run nor its exit code may depend on a reader."""

    def on_broken_pipe(self) -> None:
        """Write into nothing from now on."""
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, self.file.fileno())
        os.close(nothing)

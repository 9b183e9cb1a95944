"""Where text for a person goes: a terminal, a file or a pipe."""

import os
import textwrap

from rich.console import Console


class Screen(Console):
    """Falls silent when nobody reads any more: neither the run nor its exit code may depend on a reader."""

    def on_broken_pipe(self) -> None:
        """Write into nothing from now on."""
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, self.file.fileno())
        os.close(nothing)

    def tell(self, line: str) -> None:
        """Print a line as it is: folded at words on a terminal, whole in a file or a pipe."""
        if self.is_terminal:
            line = textwrap.fill(line, self.width, subsequent_indent="  ", drop_whitespace=True)
        self.print(line, markup=False, highlight=False, soft_wrap=True)

    def draw(self, line: str) -> None:
        """Print a line whose blanks mean something: never folded."""
        self.print(line, markup=False, highlight=False, soft_wrap=True)

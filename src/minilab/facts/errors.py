"""InputError: the one exception for what a user can mend (a file, a flag, a number)."""

from __future__ import annotations


class InputError(ValueError):
    """Bad input, told in one line: where, what was given, the limit, the way out.

    The command line prints the message alone and exits with status 2; a traceback needs
    ``--debug``.
    """

    def _render_traceback_(self) -> list[str]:
        """What IPython shows: in a notebook, too, one line is enough."""
        return [f"InputError: {self}"]

"""Errors a user can act on."""


class CgpflError(ValueError):
    """Bad input. The message is one line: what is wrong, where, and what is allowed.

    The command line prints it without a traceback and exits with code 2.
    """


class LostError(CgpflError):
    """Another process of the run is gone, or cannot be reached."""

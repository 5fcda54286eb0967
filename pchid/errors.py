"""Errors that a user can act on: each message is one sentence that says what is wrong and what to do."""


class InputError(ValueError):
    """The call was wrong; nothing has been lost. The command line shows the message and exits with 2."""


class RunError(RuntimeError):
    """A run could not go on. The command line shows the message and exits with 1."""

"""Errors that a user can act on: each message is one sentence that says what is wrong and what to do."""


class InputError(ValueError):
    """The call was wrong; nothing has been lost. The command line shows the message and exits with 2."""


def at_least(least: int, **amounts: float | None) -> None:
    """Refuse the first of these settings that is smaller, or NaN; None is no setting."""
    needed = f"at least {least} is needed" if least else "it cannot be negative"
    for name, value in amounts.items():
        if value is not None and not value >= least:
            raise InputError(f"{name} is {value}, but {needed}")


def probability(**shares: float) -> None:
    """Refuse the first of these settings that lies outside [0, 1]."""
    for name, value in shares.items():
        if not 0.0 <= value <= 1.0:
            raise InputError(f"{name} is a probability in [0, 1], not {value}")


class RunError(RuntimeError):
    """A run could not go on. The command line shows the message and exits with 1."""

"""Giving one object of Stable-Baselines3 a different conduct, and taking it back.

In: an object and a mix-in class. Out: the same object, whose class now has the mix-in in front, and who knows the
`extension` that the mix-in asks. State dictionaries, and what is saved of the object, stay as they were.
"""

from __future__ import annotations

from typing import Any


def extend(target: Any, mixin: type, extension: Any) -> None:
    """Put `mixin` in front of the object's class."""
    restore(target)
    base = type(target)
    target.__class__ = type(base.__name__, (mixin, _Extended, base), {"_base": base})
    # Not by setattr: a network would take a module in here for a part of itself.
    target.__dict__["extension"] = extension


def restore(target: Any) -> None:
    """Give the object its own class back."""
    base = getattr(type(target), "_base", None)
    if base is not None:
        target.__class__ = base
        target.__dict__.pop("extension", None)


class _Extended:
    """Pickles as what it was: such classes exist nowhere but in this process."""

    _base: type

    def __reduce_ex__(self, protocol: Any) -> Any:
        plain: Any = object.__new__(self._base)
        plain.__dict__.update({name: value for name, value in self.__dict__.items() if name != "extension"})
        return plain.__reduce_ex__(protocol)

"""Giving one object of Stable-Baselines3 a different conduct, and taking it back.

In: an object and a class whose methods are to take the place of its own. Out: the same object, of a class derived from
its own, who knows the `extension` that these methods ask. What is saved of the object stays as it was.
"""

from __future__ import annotations

from typing import Any


def extend(target: Any, conduct: type, extension: Any) -> None:
    """Let the methods of `conduct` come first; they reach the object's own as `self._base.method(self, ...)`."""
    restore(target)
    base = type(target)
    # Not by multiple inheritance: Python refuses to change an object's class to one with other bases in front.
    methods = {name: method for name, method in vars(conduct).items() if callable(method)}
    target.__class__ = type(base.__name__, (base,), {**methods, "__reduce_ex__": _as_it_was, "_base": base})
    # Not by setattr: a network would take a module in here for a part of itself.
    target.__dict__["extension"] = extension


def restore(target: Any) -> None:
    """Give the object its own class back."""
    base = getattr(type(target), "_base", None)
    if base is not None:
        target.__class__ = base
        target.__dict__.pop("extension", None)


def _as_it_was(self: Any, protocol: Any) -> Any:
    """Pickle the object as what it was: its class exists nowhere but in this process."""
    plain: Any = object.__new__(self._base)
    plain.__dict__.update({name: value for name, value in self.__dict__.items() if name != "extension"})
    return rebuild, (self._base, plain.__getstate__())


def rebuild(kind: type, state: Any) -> Any:
    """An object of this class with this state, as unpickling would make it."""
    made: Any = object.__new__(kind)
    if hasattr(made, "__setstate__"):
        made.__setstate__(state)
    else:
        made.__dict__.update(state)
    return made

"""Incremental circuits over Z-sets, kept up to date on Spark.

The public names are those of `dbsp.surface`, which is imported when the first of them is used: what needs a part of dbsp alone,
such as the command line that talks to a service, does not wait for the engine.
"""

from typing import TYPE_CHECKING

from dbsp import heap as _heap  # noqa: F401 - before anything that may import numpy
from dbsp.version import VERSION as __version__  # noqa: F401, N811 (the name Python gives it)

_CLIENTS = ("AsyncClient", "Client")
"""The names that talk to a running service. Their module needs httpx, which programs without a service do not have."""

if TYPE_CHECKING:  # a type checker knows the names, and that no other is there
    from dbsp.coordinator.client import AsyncClient as AsyncClient
    from dbsp.coordinator.client import Client as Client
    from dbsp.surface import *  # noqa: F403
    from dbsp.surface import __all__ as __all__
else:
    import builtins
    import importlib
    import sys
    from types import ModuleType

    class _Package(ModuleType):
        def __setattr__(self, name, value):
            """Python would name packages here when they are imported; `dbsp.circuit` and `dbsp.sql` are functions."""
            if name not in ("circuit", "sql") or not isinstance(value, ModuleType):
                super().__setattr__(name, value)

    def _surface():
        """The public names, each of which stands here from now on."""
        surface = importlib.import_module("dbsp.surface")
        names = {name: getattr(surface, name) for name in surface.__all__}
        public = [name for name in surface.__all__ if not hasattr(builtins, name)]  # a star leaves sum and open alone
        globals().update(names, __all__=public)
        return names

    def __getattr__(name):
        """A public name that is used first, or what others' functions are called here."""
        if name.startswith("_") and name != "__all__":
            raise AttributeError(f"module 'dbsp' has no attribute {name!r}")
        if name in _CLIENTS:
            globals()[name] = getattr(importlib.import_module("dbsp.coordinator.client"), name)
            return globals()[name]
        _surface()
        if name in globals():
            return globals()[name]
        answering = importlib.import_module("dbsp.expr.answering")
        raise answering.no_attribute("dbsp", sys.modules[__name__], name, ("value", "function"))

    def __dir__():
        """All names, for those who look."""
        return sorted({*globals(), *_surface(), *_CLIENTS})

    sys.modules[__name__].__class__ = _Package

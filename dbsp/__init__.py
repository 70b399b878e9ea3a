"""Incremental circuits over Z-sets, maintained on Spark.

The public names are those of `dbsp.surface`, which is imported when the first of them is used. So a program that needs
only a part of dbsp, such as the client's command line, does not load the engine.
"""

from typing import TYPE_CHECKING

from dbsp import heap as _heap  # noqa: F401 - before anything that may import numpy
from dbsp.version import VERSION as __version__  # noqa: F401, N811 (the name Python gives it)

_CLIENTS = ("AsyncClient", "Client")
"""The names that talk to a running service. Their module needs httpx, which programs without a service do not have."""

if TYPE_CHECKING:  # a type checker knows the names, and that no other is there
    from dbsp.coordinator.client.client import AsyncClient as AsyncClient
    from dbsp.coordinator.client.client import Client as Client
    from dbsp.surface import *  # noqa: F403
    from dbsp.surface import __all__ as __all__
else:
    import builtins
    import importlib
    import sys
    from types import ModuleType

    class _Package(ModuleType):
        def __setattr__(self, name, value):
            """Set an attribute of the package; ignore the submodules `circuit` and `sql`.

            Python binds a submodule to its name when the submodule is imported. `dbsp.circuit` and `dbsp.sql` are functions.
            """
            if name not in ("circuit", "sql") or not isinstance(value, ModuleType):
                super().__setattr__(name, value)

    def _surface():
        """Import all public names into this package, and return them with their values."""
        surface = importlib.import_module("dbsp.surface")
        names = {name: getattr(surface, name) for name in surface.__all__}
        public = [name for name in surface.__all__ if not hasattr(builtins, name)]  # a star leaves sum and open alone
        globals().update(names, __all__=public)
        return names

    def __getattr__(name):
        """Return a public name on its first use; raise an `AttributeError` that suggests a name if there is none.

        The error also recognizes what other libraries call a function.
        """
        if name.startswith("_") and name != "__all__":
            raise AttributeError(f"module 'dbsp' has no attribute {name!r}")
        if name in _CLIENTS:
            globals()[name] = getattr(importlib.import_module("dbsp.coordinator.client.client"), name)
            return globals()[name]
        _surface()
        if name in globals():
            return globals()[name]
        answering = importlib.import_module("dbsp.expr.answering")
        raise answering.no_attribute("dbsp", sys.modules[__name__], name, ("value", "function"))

    def __dir__():
        """Return all names of the package, for `dir()` and for completion."""
        return sorted({*globals(), *_surface(), *_CLIENTS})

    sys.modules[__name__].__class__ = _Package

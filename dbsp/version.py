"""The version of the engine: logged with every step, shown by the command line."""

VERSION = "0.2.0.dev0"

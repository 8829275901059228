"""The version, alone: the build reads it, and worker and dispatcher compare it."""

__version__ = "1.0.0"

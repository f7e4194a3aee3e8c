"""The commands that are more than a page: ``fit`` and ``plot``."""

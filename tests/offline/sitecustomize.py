"""Imported by every Python that a test starts: its folder is on PYTHONPATH."""

import only_this_machine  # noqa: F401

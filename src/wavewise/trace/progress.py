"""How readers say how far they are."""

from collections.abc import Callable

Progress = Callable[[str, float], None]
"""Called with what is being done and the share done (0 to 1); may be called often."""

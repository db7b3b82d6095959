"""Windows: the policies that cut a stream into pieces, and the engine that holds the pieces."""

from penstock.windows.engine import Fired, PartitionWindow
from penstock.windows.policies import Window, session, sliding, tumbling

__all__ = ["Fired", "PartitionWindow", "Window", "session", "sliding", "tumbling"]

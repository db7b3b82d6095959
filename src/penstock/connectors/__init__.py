"""Connectors: where tuples come from (sources) and where they go (sinks)."""

"""From the user's graph to the functions that run it."""

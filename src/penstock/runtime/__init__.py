"""Runs compiled segments: what a thread carries, where threads meet, when things end."""

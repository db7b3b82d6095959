"""Profile in, plan out: what operators cost, and what to do about it."""

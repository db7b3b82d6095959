"""The examples give what plain Python gives, on made-up data and, where it is at hand, on real data."""

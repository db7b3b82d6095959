"""What the user said: a frozen description of operators and streams, apart from anything that runs."""

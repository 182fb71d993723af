"""Learning from a graph that grows update by update and is read in parts, however it is stored."""

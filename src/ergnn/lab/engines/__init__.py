"""Engines compute units of work: in processes of this machine, or on a Ray cluster."""

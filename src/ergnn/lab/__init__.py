"""Experiments: configurations of runs, their execution, stores, the paper's and others' tables, comparisons."""

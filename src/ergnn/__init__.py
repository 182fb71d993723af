"""ergnn: graph neural networks that keep learning."""

__version__ = "0.1.0"

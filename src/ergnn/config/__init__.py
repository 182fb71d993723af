"""Settings, registries, errors and files: what every other package uses. Imports no torch."""

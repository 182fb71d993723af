"""How classes, domains and periods become tasks."""

"""Commands that are more than a few lines; each module's ``add`` puts its command on the command line."""

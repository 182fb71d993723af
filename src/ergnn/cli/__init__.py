"""One module per command; its function ``add`` adds the command to the parser."""

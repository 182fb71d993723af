"""Where units of work are computed: in processes of this machine, or on a Ray cluster."""

"""Who may come in, from the command line: passwords, SCRAM credentials, certificates."""

AUTHORITY = "authority"  # The name of its files, in the folder of what it signs.

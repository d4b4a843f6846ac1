"""Who may come in, from the command line: passwords, SCRAM credentials, certificates."""

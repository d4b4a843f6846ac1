"""Messages: which are read (`records`, `filters`), what their bytes mean (`content`)."""

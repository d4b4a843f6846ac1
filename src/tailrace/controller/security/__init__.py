"""Who may do what: ACLs as metadata records, and what follows from them."""

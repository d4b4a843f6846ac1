"""Who may do what, and how much: ACLs and quotas as metadata records, and what follows from them."""

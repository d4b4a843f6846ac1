"""Who asks, by the logins of the cluster, and what they may do, by its ACLs."""

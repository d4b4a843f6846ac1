"""ACLs that come and go during a run, and clients that try what they allow."""

"""A replica that another broker leads: it fetches, appends, and cuts what the leader does not have."""

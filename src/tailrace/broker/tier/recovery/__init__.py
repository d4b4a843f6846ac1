"""A cluster that comes back from its bucket: what it leaves there for that, and the data folder that is made of it."""

"""Transactional producers and read_committed consumers of the libraries that people use."""

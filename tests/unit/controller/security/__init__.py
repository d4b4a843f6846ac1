"""Tests of ACLs and of what follows from them."""

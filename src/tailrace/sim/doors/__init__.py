"""Listeners that ask who comes: handshakes without cryptography, users that change, and strangers."""

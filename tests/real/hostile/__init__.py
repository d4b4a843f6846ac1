"""Clients that mean harm, or act as if they did."""

"""Tests of what those who ask may do."""

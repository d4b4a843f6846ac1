"""Transactional ids: who may write under one, which partitions its transaction has, and how it ends."""

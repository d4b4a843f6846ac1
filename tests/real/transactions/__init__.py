"""Transactions across processes that are killed: of clients, of coordinators, of leaders."""

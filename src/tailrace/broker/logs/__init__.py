"""What a node writes of requests, for people.

audit       every change that somebody asked for: who, from where, what, and what became of it
gate        how many lines a second: what comes after them is counted
"""

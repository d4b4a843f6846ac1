"""What a node writes of requests, for people.

audit       every change that somebody asked for: who, from where, what, and what became of it
trail       the last of these lines, for those who ask the node
requests    single requests, those of some clients or slow ones, with what they took
gate        how many lines a second: what comes after them is counted
"""

"""Groups of consumers of every library, each member a process of its own that keeps a journal.

`members` are the programs, `crowd` starts, kills and watches them, `account` judges what they have written down.
"""

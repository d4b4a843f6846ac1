"""The console: the cluster in a browser.

`watcher` takes a `picture` of the cluster every few seconds and keeps a `history` of it. `pages` show both as HTML that
is made here; a script of a few lines puts newer HTML in its place. `records` reads messages on request, `filters`
chooses among them, `content` says what bytes mean. `visitors` knows who looks: where the cluster wants logins, everyone
sees and does only what the cluster lets them.
"""

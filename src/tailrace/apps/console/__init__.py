"""The console: the cluster in a browser.

`watcher` takes a `picture` of the cluster every few seconds and keeps a `history` of it. `pages` show both as HTML that
is made here; a script of a few lines puts newer HTML in its place. `reading` reads messages on request, chooses among
them, opens and masks them. `doors` knows who looks: where the cluster wants logins, everyone sees and does only what
the cluster lets them. `alerts` are told by another process, and `balancing` runs the balancer beside the loop.
"""

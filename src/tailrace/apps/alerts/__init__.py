"""Alerts: rules over the metrics of all nodes, and who is told when one holds.

rules        what a rule is, and files of them
defaults     the rules that are shipped
engine       pure: from readings to alerts that begin, hold and end
senders      webhooks, Slack, commands
silences     what nobody wants to hear of for a while
status       what holds now, as a file for the console
service      joins them: the process `tailrace alerts run`
election     one of several such processes acts, chosen by a consumer group
prometheus   the same rules for Prometheus, and a dashboard for Grafana
"""

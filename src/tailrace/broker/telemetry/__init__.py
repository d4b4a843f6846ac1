"""What clients tell of their own metrics (KIP-714): asked for by subscriptions, taken within bounds, and handed on.

telemetry     answers clients: who may push what, and when
instances     what is known of one client between its requests
otlp          OTLP's MetricsData, read as far as it is shown
series        what clients have told, for the metrics listener
forwarding    the same, handed on over HTTP

None of it is loaded unless `client.telemetry.receivers` names a receiver.
"""

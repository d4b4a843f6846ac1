"""This broker's replicas: partitions over their logs, who waits for them, and the work that goes on behind them."""

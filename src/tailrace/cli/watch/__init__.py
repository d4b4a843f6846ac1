"""Commands that watch a cluster by the metrics of its nodes: `alerts`, `metrics` and `top`."""

"""The balancer: which replicas should lie where (`plan`, pure), and how they get there (`run`)."""

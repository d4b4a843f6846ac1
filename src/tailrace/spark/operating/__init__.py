"""Running pipelines as others see them: what each run tells, its metrics and health, how far behind it is."""

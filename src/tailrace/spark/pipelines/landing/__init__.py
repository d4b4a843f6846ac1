"""Batches of rows into Delta and Iceberg tables, each exactly once.

Executors write Parquet files (`files`), and nobody sees them until the driver puts all of a batch into the table by
one commit (`delta`, `iceberg`), which also says whose batch it was (`batches`). A batch that comes again after a
restart finds itself there, and is left out. What a crash leaves behind is files that no table knows. Rows
that replace those of their key are reduced by the executors and merged by the driver (`merging`), as such a commit.
"""

"""Avro data of many records at once into Arrow columns, by numpy: a program of steps for each pair of schemas."""

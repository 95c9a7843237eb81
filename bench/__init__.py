"""The benchmarks: what walferry costs, beside what the machine and its peers give.

``python -m bench --help``. Every run brings its own Postgres and Kafka, and says on
which machine it was.
"""

# Postgres with wal2json, for whoever wants that plugin instead of pgoutput.
FROM postgres:17
# The newest minor is wanted.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends postgresql-17-wal2json \
    && rm -rf /var/lib/apt/lists/*

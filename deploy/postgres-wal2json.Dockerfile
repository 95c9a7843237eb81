# Postgres with wal2json, for whoever wants that plugin instead of pgoutput.
FROM postgres:17
# hadolint ignore=DL3008 - the newest minor is wanted
RUN apt-get update \
    && apt-get install -y --no-install-recommends postgresql-17-wal2json \
    && rm -rf /var/lib/apt/lists/*

CREATE TABLE IF NOT EXISTS {table} (
    id            uuid        PRIMARY KEY DEFAULT pg_catalog.gen_random_uuid(),
    aggregatetype text        NOT NULL,
    aggregateid   text        NOT NULL,
    type          text        NOT NULL,
    payload       jsonb,
    headers       jsonb,
    created_at    timestamptz NOT NULL DEFAULT pg_catalog.now()
);

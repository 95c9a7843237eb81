# The relay in a small image: no compiler, no root, fine with a read-only root file system.
FROM python:3.13-slim AS build
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY cdc ./cdc
COPY slots ./slots
# Wheels only, so that every architecture gets what was tested, or nothing.
RUN python -m venv --without-pip /opt/walferry \
    && pip --python /opt/walferry/bin/python install --no-cache-dir --only-binary=:all: \
        -c constraints.txt ".[compression]"

FROM python:3.13-slim
COPY --from=build /opt/walferry /opt/walferry
ENV PATH=/opt/walferry/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    CDC_HTTP__LISTEN=0.0.0.0:8080
# Mount a cdc.toml here, or set everything by environment.
WORKDIR /etc/walferry
USER 10001:10001
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s CMD ["python", "-c", "import os, urllib.request as u; u.urlopen('http://127.0.0.1:' + os.environ['CDC_HTTP__LISTEN'].rpartition(':')[2] + '/livez', timeout=2)"]
ENTRYPOINT ["cdc"]
CMD ["run"]

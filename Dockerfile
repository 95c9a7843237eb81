# The relay in a small image: no compiler, no root, fine with a read-only root file system.
FROM python:3.13-slim AS build
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY cdc ./cdc
COPY slots ./slots
RUN python -m venv /opt/walferry \
    && /opt/walferry/bin/pip install --no-cache-dir -c constraints.txt ".[compression]"

FROM python:3.13-slim
COPY --from=build /opt/walferry /opt/walferry
ENV PATH=/opt/walferry/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    CDC_HTTP__LISTEN=0.0.0.0:8080
USER 10001:10001
WORKDIR /tmp
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8080/livez', timeout=2)"]
ENTRYPOINT ["cdc"]
CMD ["run"]

# The bridge in a slim image, without compiler and root; it writes only below /data and /tmp.
#   docker build -t dialect-bridge .
#   docker run --read-only --tmpfs /tmp -v bridge-data:/data -v ./config.yaml:/etc/dialect-bridge/config.yaml:ro \
#     -p 8080:8080 dialect-bridge
FROM python:3.13-slim AS build
WORKDIR /src
COPY pyproject.toml LICENSE constraints.txt ./
COPY bridge bridge
COPY adapters adapters
COPY deploy/release deploy/release
# EXTRAS: the extras to install, such as "redis,postgres".
ARG EXTRAS=all
RUN python -m venv /app && /app/bin/pip install --no-cache-dir -c constraints.txt ".[${EXTRAS}]"
# The bill of materials of the installed packages; the tool itself is not in the image.
RUN pip install --no-cache-dir -c constraints.txt cyclonedx-python-lib packaging \
    && mkdir -p /app/share/sbom \
    && python deploy/release/sbom.py --extras "${EXTRAS}" \
        --path "$(/app/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" \
        /app/share/sbom/dialect-bridge.cdx.json

FROM python:3.13-slim
# REVISION: the commit of the image (docker build --build-arg REVISION=$(git rev-parse HEAD)).
ARG REVISION=unknown
LABEL org.opencontainers.image.title="dialect-bridge" \
    org.opencontainers.image.licenses="Apache-2.0" \
    org.opencontainers.image.revision="${REVISION}" \
    dialect-bridge.sbom="/app/share/sbom/dialect-bridge.cdx.json"
RUN useradd --system --uid 10001 --no-create-home bridge \
    && mkdir /data /etc/dialect-bridge && chown bridge /data
# The base image has no bytecode of the standard library. Without this step each start, and each health check, would
# compile every module that it imports.
RUN python -c "import compileall, sysconfig; compileall.compile_dir(sysconfig.get_path('stdlib'), quiet=1)"
COPY --from=build /app /app
COPY deploy/container.yaml /etc/dialect-bridge/config.yaml
ENV PATH=/app/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /data
USER 10001
VOLUME /data
EXPOSE 8080
# SIGTERM drains: give the container longer than server.drain to stop (docker stop -t 40).
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=15s \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8080/healthz', timeout=2)"]
ENTRYPOINT ["dialect-bridge"]
CMD ["serve", "/etc/dialect-bridge/config.yaml", "--host", "0.0.0.0", "--log-format", "json"]

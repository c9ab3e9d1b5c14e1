# The bridge in a slim image, without compiler and root; it writes only below /data and /tmp.
#   docker build -t dialect-bridge:0.1.0 .
#   docker run --read-only --tmpfs /tmp -v bridge-data:/data -v ./config.yaml:/etc/dialect-bridge/config.yaml:ro \
#     -p 8080:8080 dialect-bridge:0.1.0
FROM python:3.13-slim AS build
WORKDIR /src
COPY pyproject.toml LICENSE constraints.txt ./
COPY bridge bridge
COPY adapters adapters
COPY deploy/release deploy/release
# EXTRAS: the extras to install, such as "postgres,jwt".
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
# Some platforms run a container as an arbitrary user, who is in group 0.
RUN useradd --system --uid 10001 --no-create-home bridge \
    && mkdir /data /etc/dialect-bridge && chown bridge:0 /data && chmod g=u /data
# The base image has no bytecode of the standard library. Without this step each start, and each health check, would
# compile every module that it imports.
RUN python -c "import compileall, sysconfig; compileall.compile_dir(sysconfig.get_path('stdlib'), quiet=1)"
COPY --from=build /app /app
COPY deploy/container.yaml /etc/dialect-bridge/config.yaml
# The server writes the URL of its health check there: address, port and path of the configuration that it serves.
ENV PATH=/app/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 BRIDGE_HEALTH_FILE=/tmp/dialect-bridge-health
WORKDIR /data
USER 10001
VOLUME /data
EXPOSE 8080
# SIGTERM drains: give the container longer than server.drain to stop (docker stop -t 40).
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=15s \
    CMD ["python", "-c", "import os, urllib.request as u; u.urlopen(open(os.environ['BRIDGE_HEALTH_FILE']).read(), timeout=2)"]
ENTRYPOINT ["dialect-bridge"]
CMD ["serve", "/etc/dialect-bridge/config.yaml", "--host", "::", "--log-format", "json"]

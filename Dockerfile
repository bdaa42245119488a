# visioneval with OCR and its models, videos, SVGs, tables, buckets and pages. It downloads nothing when it runs.
#
#     docker build --tag visioneval .
#     docker run --rm --user "$(id -u):$(id -g)" --volume "$PWD:/work" visioneval run suite.yaml
#
# Add --network none if the suite calls no model, else --env OPENAI_API_KEY or another key.
#
# Pin the digest of this image at a release, in both stages.
FROM python:3.13-slim AS build
COPY pyproject.toml README.md LICENSE /source/
COPY prompts /source/prompts
COPY suites /source/suites
COPY visioneval /source/visioneval
RUN python -m venv /opt/visioneval \
    && /opt/visioneval/bin/pip install --no-cache-dir "/source[ocr,video,svg,codes,parquet,hf,gcs,s3,label]"

FROM python:3.13-slim
COPY --from=build /opt/visioneval /opt/visioneval
# The cache has answers that were paid for: it stays in the mounted folder.
ENV PATH="/opt/visioneval/bin:$PATH" XDG_CACHE_HOME=/work/.cache
RUN useradd --uid 1000 --create-home visioneval && install --directory --owner visioneval /work
USER 1000
# Text is read, and videos are written and read, without network: nothing is missing.
RUN --network=none visioneval init /tmp/check --template videos \
    && visioneval run /tmp/check/suite.yaml --runs /tmp/check/runs --cache /tmp/check/cache --model "*none" --case opening \
    && rm -r /tmp/check
WORKDIR /work
ENTRYPOINT ["visioneval"]
CMD ["--help"]

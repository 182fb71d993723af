# A learner's folder as a service, on a CPU:
#   docker build -t ergnn .
#   docker run -p 8000:8000 -e ERGNN_TOKEN=... -v ./learner:/learner ergnn
FROM python:3.12-slim
ENV PIP_NO_CACHE_DIR=1 PYTHONUNBUFFERED=1 OMP_NUM_THREADS=1 HOME=/tmp
WORKDIR /app
# the index of PyTorch's CPU builds, for a small image: --build-arg TORCH_INDEX=...
ARG TORCH_INDEX=
RUN pip install ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} torch
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN pip install ".[serve]"
RUN useradd --uid 1000 ergnn
USER ergnn
VOLUME /learner
EXPOSE 8000
HEALTHCHECK --start-period=60s CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/health')"]
CMD ["ergnn", "serve", "/learner", "--host", "0.0.0.0", "--port", "8000"]

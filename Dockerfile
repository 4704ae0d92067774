# A machine that builds and tests Athanor: docker build -t athanor . && docker run --rm athanor scripts/test.sh
FROM debian:bookworm-slim
WORKDIR /athanor
# Packages first: their layer lasts as long as the list does.
COPY scripts/install_packages.sh scripts/
RUN scripts/install_packages.sh && rm -rf /var/lib/apt/lists/*
COPY . .
CMD ["scripts/quickstart.sh"]

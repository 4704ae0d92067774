# A machine that builds and tests Athanor: docker build -t athanor . && docker run --rm athanor scripts/test.sh
FROM debian:bookworm-slim
WORKDIR /athanor
# Packages first: their layer lasts as long as the list does.
COPY scripts/install_packages.sh scripts/
RUN scripts/install_packages.sh && rm -rf /var/lib/apt/lists/*
COPY . .
# mpirun as root, with more ranks than cores.
ENV OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
    OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_mpi_yield_when_idle=1
CMD ["scripts/quickstart.sh"]

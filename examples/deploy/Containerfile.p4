# netsum's sources with p4c and BMv2, to change the P4 program: docker build -t netsum-p4 -f examples/deploy/Containerfile.p4 .
# Then: docker run --rm -it --privileged netsum-p4; make p4 compiles, netsum testbed up star-4 --switch bmv2 runs it.
ARG BASE=ubuntu:24.04
FROM ${BASE} AS p4
ENV DEBIAN_FRONTEND=noninteractive
RUN apt-get update \
 && apt-get install -y --no-install-recommends \
      ca-certificates curl ethtool git gpg iproute2 iputils-ping make mininet python3-venv tshark \
 && . /etc/os-release \
 && packages="http://download.opensuse.org/repositories/home:/p4lang/xUbuntu_$VERSION_ID" \
 && curl -fsSL "$packages/Release.key" | gpg --dearmor -o /etc/apt/trusted.gpg.d/p4lang.gpg \
 && echo "deb $packages/ /" > /etc/apt/sources.list.d/p4lang.list \
 && apt-get update && apt-get install -y --no-install-recommends p4lang-bmv2 p4lang-p4c \
 && rm -rf /var/lib/apt/lists/*

FROM p4
COPY . /netsum
WORKDIR /netsum
# What `make` would install at its first call.
RUN make .venv/.with-dev && .venv/bin/python -m netsum.warm_cache
ENV PATH=/netsum/.venv/bin:$PATH
CMD ["bash"]

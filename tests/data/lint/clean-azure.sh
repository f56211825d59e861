#!/bin/bash
# The form of Azure's own NCCL test launch for ND H100 v5.
#SBATCH --nodes=2
mpirun -np 16 --map-by ppr:8:node \
    -x LD_LIBRARY_PATH \
    -x NCCL_TOPO_FILE=/opt/microsoft/ndv5-topo.xml \
    -x CUDA_DEVICE_ORDER=PCI_BUS_ID \
    -x NCCL_SOCKET_IFNAME=eth0 \
    -x NCCL_IB_PCI_RELAXED_ORDERING=1 \
    -x NCCL_DEBUG=WARN \
    /opt/nccl-tests/build/all_reduce_perf -b 8 -e 8G -f 2 -g 1 -c 0

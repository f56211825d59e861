#!/bin/bash
#SBATCH --nodes=4
#SBATCH --gpus-per-node=8
export CUDA_DEVICE_MAX_CONNECTIONS=1
export NCCL_IB_TIMEOUT=22
GPUS_PER_NODE=8
NNODES=4
TP=${TP:-4}
DISTRIBUTED_ARGS="
    --nproc_per_node $GPUS_PER_NODE \
    --nnodes $NNODES
"
GPT_ARGS=(
    --tensor-model-parallel-size $TP
    --pipeline-model-parallel-size 2   # two stages
    --sequence-parallel
    --num-layers 32
    --hidden-size 4096
    --num-attention-heads 32
    --group-query-attention
    --num-query-groups 8
    --ffn-hidden-size 14336
    --seq-length 8192
    --max-position-embeddings 8192
    --micro-batch-size 1
    --global-batch-size $((4*64))
    --bf16
    --use-distributed-optimizer
)
srun torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py "${GPT_ARGS[@]}" --lr 3e-4

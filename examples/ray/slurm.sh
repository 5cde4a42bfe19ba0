#!/usr/bin/env bash
# Not run here: no Slurm is. `sbatch slurm.sh`: a node for the driver, four for the shards. A job that was
# cancelled, or that ran out of time, goes on from its storage when it is submitted again.
#SBATCH --job-name fast-slate
#SBATCH --nodes 5
#SBATCH --ntasks-per-node 1
#SBATCH --cpus-per-task 8
#SBATCH --mem 64G
#SBATCH --time 12:00:00
#SBATCH --requeue
set -euo pipefail
nodes=($(scontrol show hostnames "$SLURM_JOB_NODELIST"))
head=${nodes[0]}
port=6379
# Since Slurm 22.05 srun does not take the number of CPUs from sbatch.
cpus=(--cpus-per-task "$SLURM_CPUS_PER_TASK")
common=(--object-store-memory 2000000000 --num-cpus "$SLURM_CPUS_PER_TASK" --block)
srun --nodes 1 --ntasks 1 "${cpus[@]}" --nodelist "$head" ray start --head --port "$port" "${common[@]}" &
sleep 20
srun --nodes "$((SLURM_NNODES - 1))" --ntasks "$((SLURM_NNODES - 1))" "${cpus[@]}" --exclude "$head" \
    ray start --address "$head:$port" --resources '{"shard": 1}' "${common[@]}" &
sleep 20
RAY_ADDRESS="$head:$port" python -m fast_slate.ray train train.toml

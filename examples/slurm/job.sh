#!/bin/sh
# A long MPI run in pieces that fit a time limit: each goes on where the last one was.
#
#   sbatch examples/slurm/job.sh            in Slurm
#   sh examples/slurm/job.sh                without; stop it with `kill -USR1`, and start it again
#
# The steps are one after another: this script submits itself again when crdebug's status says that
# there is more to do. To change what runs, set COMMAND, NAME and STATE.
#SBATCH --job-name=heat
#SBATCH --nodes=1
#SBATCH --exclusive
#SBATCH --time=01:00:00
#SBATCH --signal=B:USR1@120
#SBATCH --open-mode=append

NAME=${NAME:-heat}
COMMAND=${COMMAND:-mpirun -n 4 examples/heat/heat 512 20000}
# The checkpoints must be where the next piece finds them.
export CRDEBUG_HOME="${STATE:-$PWD/crdebug-state}"

# shellcheck disable=SC2086  # COMMAND is words
crdebug run --no-debugger --resume --name "$NAME" \
    --every 10m --keep 2 --on-signal USR1 -- $COMMAND &
child=$!
# Slurm's B: sends the warning to this shell; a shell that waits hands nothing on by itself.
trap 'kill -USR1 $child' USR1
trap 'kill -TERM $child' TERM INT

# A trap ends `wait`; the child's status is known once it is gone.
while kill -0 $child 2>/dev/null; do
    wait $child
    status=$?
done

case $status in
0) echo "$NAME: done" ;;
75 | 137) # its time was up, or its node killed it: go on from the newest checkpoint
    echo "$NAME: to be continued"
    if [ -n "$SLURM_JOB_ID" ]; then sbatch "$0"; fi
    ;;
*) echo "$NAME: failed with status $status" ;;
esac
exit $status

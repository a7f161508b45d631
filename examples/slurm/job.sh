#!/bin/sh
# A long MPI run in pieces that fit a time limit: each goes on where the last one was.
#
#   sbatch examples/slurm/job.sh            in Slurm
#   sh examples/slurm/job.sh                without; stop it with `kill -USR1`, and start it again
#
# The steps are one after another: this script submits itself again when crdebug's status says that
# there is more to do: its time was up, or it was killed, but not by `crdebug kill`, and no more than
# LIMIT times one after another. To change what runs, set COMMAND, NAME and STATE.
#SBATCH --job-name=heat
#SBATCH --nodes=1
#SBATCH --exclusive
#SBATCH --time=01:00:00
#SBATCH --signal=B:USR1@120
#SBATCH --open-mode=append

NAME=${NAME:-heat}
LIMIT=${LIMIT:-3}
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

# A trap ends `wait`; the child's status is known once it is gone. (127: it was known before.)
while :; do
    wait $child
    status=$?
    kill -0 $child 2>/dev/null || break
done
wait $child
again=$?
[ $again -eq 127 ] || status=$again

# How often it was killed since a piece last came to the end of its time.
mkdir -p -m 700 "$CRDEBUG_HOME"
kills="$CRDEBUG_HOME/$NAME.kills"
killed=$(cat "$kills" 2>/dev/null || echo 0)
[ $status -eq 137 ] && killed=$((killed + 1)) || killed=0
echo $killed >"$kills"

case $status in
0) echo "$NAME: done" ;;
75 | 137) # its time was up, or something killed it: go on from the newest checkpoint
    if [ $killed -ge "$LIMIT" ]; then
        echo "$NAME: killed $killed times in a row: not continued"
        exit $status
    fi
    echo "$NAME: to be continued"
    if [ -n "$SLURM_JOB_ID" ]; then sbatch "$0"; fi
    ;;
143) echo "$NAME: ended by crdebug kill" ;;
*) echo "$NAME: failed with status $status" ;;
esac
exit $status

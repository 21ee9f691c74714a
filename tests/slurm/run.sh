#!/usr/bin/env bash
# Trains in a real Slurm allocation of three tasks: controller and node on this machine, from Debian's packages.
# Wants root, and a built program: tests/slurm/run.sh [path of ferroflow]. Leaves nothing running.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
ferroflow="$(realpath "${1:-target/release/ferroflow}")"
work="$(mktemp -d)"
pids=()

main() {
  install
  start
  printf '\n==> launched in an allocation of three tasks: 1 ps and 2 workers\n'
  launch=(salloc --quiet -n 3 "$ferroflow" launch --slurm --ps 1 -- "$ferroflow" demo-task '{flags}')
  train sync "${launch[@]}" --sync
  train async "${launch[@]}"
  printf '\n==> started by srun, three tasks that find their places themselves\n'
  train srun srun --quiet -n 3 "$ferroflow" demo-task --slurm_ps=1
  printf '\nall green\n'
}

install() {
  if command -v slurmctld slurmd munged >/dev/null; then return; fi
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends slurm-wlm munge
}

# Everything is kept in a directory of its own, so that a Slurm that is here already is not touched.
start() {
  local host key="$work/munge.key"
  host="$(hostname -s)"
  dd if=/dev/urandom of="$key" bs=1024 count=1 status=none
  chmod 600 "$key"
  chmod 755 "$work"
  munged --foreground --force --num-threads=2 --socket="$work/munge.socket" --key-file="$key" \
    --pid-file="$work/munged.pid" --log-file="$work/munged.log" --seed-file="$work/munge.seed" >"$work/munge.out" 2>&1 &
  pids+=($!)
  cat >"$work/slurm.conf" <<CONF
ClusterName=ferroflow
SlurmctldHost=$host
SlurmctldPort=16817
SlurmdPort=16818
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$work/munge.socket
CryptoType=crypto/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
ReturnToService=2
SlurmdParameters=config_overrides
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.pid
SlurmctldLogFile=$work/slurmctld.log
SlurmdLogFile=$work/slurmd.log
AccountingStorageType=accounting_storage/none
NodeName=$host CPUs=4 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONF
  mkdir -p "$work/state" "$work/spool"
  export SLURM_CONF="$work/slurm.conf"
  wait_for "munge" test -S "$work/munge.socket"
  slurmctld -D >"$work/slurmctld.out" 2>&1 &
  pids+=($!)
  slurmd -D >"$work/slurmd.out" 2>&1 &
  pids+=($!)
  wait_for "a node that is idle" sh -c 'sinfo -h -o %T | grep -q idle'
}

# train NAME COMMAND: trains in an allocation, then looks that it has learned and that nothing is left of it.
train() {
  local name="$1" log="$work/$1.log"
  shift
  if ! timeout 300 "$@" --train_dir="$work/$name" --steps=300 >"$log" 2>&1; then
    tail -n 40 "$log" "$work"/slurm*.out >&2
    fail "training in the allocation failed"
  fi
  grep -q '"test_accuracy":0.9' "$log" || fail "the model is not good: $(grep test_accuracy "$log")"
  grep -o '"test_accuracy":[0-9.]*' "$log"
  wait_for "the end of all processes" sh -c '! pgrep -f "[d]emo-task" >/dev/null'
  wait_for "a free node" sh -c 'sinfo -h -o %T | grep -q idle'
}

# wait_for WHAT COMMAND: waits at most a minute.
wait_for() {
  local what="$1" end=$((SECONDS + 60))
  shift
  until "$@" 2>/dev/null; do
    if ((SECONDS > end)); then fail "$what was waited for in vain; see $work"; fi
    sleep 0.1
  done
}

fail() {
  printf '%s\n' "$*" >&2
  exit 1
}

clean() {
  local code=$?
  if ((${#pids[@]})); then kill "${pids[@]}" 2>/dev/null || true; fi
  wait 2>/dev/null || true
  if ((code == 0)); then rm -rf "$work"; fi
}
trap clean EXIT

main

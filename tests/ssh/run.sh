#!/usr/bin/env bash
# `ferroflow launch --host-file` over a real sshd, on two addresses of this machine: training, exit codes, and that nothing
# is left on the other side whichever way a launch ends.
# Wants root where openssh-server is to be installed, and a built program: tests/ssh/run.sh [path of ferroflow].
# Leaves nothing running.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
ferroflow="$(realpath "${1:-target/release/ferroflow}")"
work="$(mktemp -d)"
made_run_dir=
sshd=
launcher=

main() {
  install
  start
  trains async
  trains sync --sync
  passes_on_the_exit_code
  leaves_nothing "Ctrl-C" INT 130
  leaves_nothing "SIGTERM" TERM 143
  leaves_nothing "SIGKILL" KILL 137
  survives_a_lost_connection
  printf '\nall green\n'
}

install() {
  if [[ -x /usr/sbin/sshd ]] && command -v ssh ssh-keygen >/dev/null; then return; fi
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends openssh-server openssh-client
}

# A server of our own with keys of its own, so that the machine's are not touched.
start() {
  local port
  port="$(free_port)"
  ssh-keygen -q -t ed25519 -N '' -f "$work/host_key"
  ssh-keygen -q -t ed25519 -N '' -f "$work/key"
  cat >"$work/sshd_config" <<CONF
Port $port
ListenAddress 127.0.0.1
ListenAddress 127.0.0.2
HostKey $work/host_key
AuthorizedKeysFile $work/key.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
MaxStartups 100
CONF
  cat >"$work/ssh_config" <<CONF
Port $port
IdentityFile $work/key
IdentitiesOnly yes
UserKnownHostsFile $work/known_hosts
StrictHostKeyChecking accept-new
LogLevel ERROR
CONF
  printf '127.0.0.1\n127.0.0.2 slots=2\n' >"$work/hosts"
  if [[ $EUID == 0 && ! -d /run/sshd ]]; then mkdir -m 755 /run/sshd && made_run_dir=1; fi
  /usr/sbin/sshd -D -e -f "$work/sshd_config" 2>"$work/sshd.log" &
  sshd=$!
  wait_for "sshd" ssh -F "$work/ssh_config" -o BatchMode=yes 127.0.0.1 true
}

# launch ARGUMENTS: becomes ferroflow launch, over our sshd.
launch() {
  exec "$ferroflow" launch --host-file "$work/hosts" --ssh "ssh -F $work/ssh_config" --port "$(free_port)" "$@"
}

# trains NAME FLAGS: trains on both addresses, then looks that it has learned and that nothing is left of it.
trains() {
  local name="$1" log="$work/$1.log"
  shift
  printf '\n==> 1 ps and 2 workers over ssh, %s\n' "$name"
  (launch --ps 1 --workers 2 -- "$ferroflow" demo-task '{flags}' --train_dir="$work/$name" --steps=300 "$@") \
    >"$log" 2>&1 || fail "training failed" "$log"
  grep -q '127.0.0.1:.*127.0.0.2:' "$log" || fail "not on both addresses" "$log"
  grep -q '"test_accuracy":0.9' "$log" || fail "the model is not good" "$log"
  grep -o '"test_accuracy":[0-9.]*' "$log"
  nothing_is_left
}

passes_on_the_exit_code() {
  local code=0
  printf '\n==> the exit code of a program on the other side\n'
  (launch --ps 0 --workers 1 -- sh -c 'exit 7') >"$work/code.log" 2>&1 || code=$?
  ((code == 7)) || fail "wanted exit code 7, got $code" "$work/code.log"
}

# leaves_nothing NAME SIGNAL CODE: ends a launch by a signal while its programs, and what they started, run.
leaves_nothing() {
  local name="$1" signal="$2" want="$3"
  printf '\n==> %s\n' "$name"
  start_sleepers
  kill -s "$signal" "$launcher"
  ends_with "$want"
}

# A machine that is no longer reached: the launch fails, and what ran there ends.
survives_a_lost_connection() {
  printf '\n==> a lost connection\n'
  start_sleepers
  kill -KILL "$(pgrep -f -n "^ssh .*$work/ssh_config")"
  ends_with 137
}

# Starts a launch of two tasks, each with a process that it started; sets launcher.
start_sleepers() {
  ln -sf "$(command -v sleep)" "$work/sleeper"
  # A shell lets what it starts in the background ignore SIGINT, unless it watches over jobs.
  set -m
  launch --grace 2 --ps 1 --workers 1 -- sh -c "$work/sleeper 1000 & $work/sleeper 1000; exit" >"$work/sleepers.log" 2>&1 &
  launcher=$!
  set +m
  wait_for "four processes" sh -c "[ \"\$(pgrep -c -fx '$work/sleeper 1000')\" = 4 ]"
}

# ends_with CODE: waits for the launcher and looks that nothing is left of it.
ends_with() {
  local code=0
  wait "$launcher" 2>/dev/null || code=$?
  ((code == $1)) || fail "wanted exit code $1, got $code" "$work/sleepers.log"
  nothing_is_left
}

nothing_is_left() {
  wait_for "the end of all processes" sh -c "! pgrep -f '$work' | grep -vx -e '$sshd' -e \$\$"
}

# A port nobody listens on, below those that the system gives to outgoing connections.
free_port() {
  local port
  while :; do
    port=$((10000 + RANDOM % 20000))
    if ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then break; fi
  done
  printf '%s' "$port"
}

# wait_for WHAT COMMAND: waits at most a minute.
wait_for() {
  local what="$1" end=$((SECONDS + 60))
  shift
  until "$@" >/dev/null 2>&1; do
    if ((SECONDS > end)); then fail "$what was waited for in vain"; fi
    sleep 0.1
  done
}

# fail WHY [LOG]
fail() {
  printf '%s; see %s\n' "$1" "$work" >&2
  if [[ -n "${2:-}" ]]; then tail -n 40 "$2" >&2; fi
  exit 1
}

clean() {
  local code=$?
  if [[ -n "$sshd" ]]; then kill "$sshd" 2>/dev/null || true; fi
  wait 2>/dev/null || true
  if [[ -n "$made_run_dir" ]]; then rmdir /run/sshd; fi
  if ((code == 0)); then rm -rf "$work"; fi
}
trap clean EXIT

main

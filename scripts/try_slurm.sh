#!/bin/bash
# Runs the commands of docs/guide/slurm.md under the distribution's slurmctld, slurmd and munged, on
# the simulated GPU, and looks at the promises of each one. Two jobs share a GPU, and a third one is
# in the queue. One is suspended, and a step is killed. Then come bills, and the prolog.
#
#   scripts/try_slurm.sh BUILD
#
# The daemons run in namespaces of their own, in one temporary folder. Nothing is left, whatever fails.
# Here processes belong to a step by their parents (proctrack/linuxproc): cgroups are not tried.
set -euo pipefail
cd "$(dirname "$0")/.."
build="$(realpath "$1")"
if [ -z "${SWITCHYARD_TEST_INSIDE:-}" ]; then
  if [ "$(id -u)" -ne 0 ] || ! unshare --mount --pid --net --uts --fork true 2> /dev/null; then
    echo "NOT CHECKED: Slurm. That needs root, and unshare of mount, PID and network namespaces"
    exit 0
  fi
  work="$(mktemp -d)"
  trap 'rmdir "$work"' EXIT
  SWITCHYARD_TEST_INSIDE="$work" timeout --kill-after=5 110 \
    unshare --mount --ipc --pid --net --uts --fork --kill-child "$0" "$build"
  exit
fi

work="$SWITCHYARD_TEST_INSIDE"
mount -t tmpfs -o mode=755 tmpfs "$work"
mount -t proc proc /proc
mount -t tmpfs -o mode=755 tmpfs /run
unset LD_PRELOAD LD_LIBRARY_PATH SWITCHYARD_SOCKET
export LC_ALL=C.UTF-8 TZ=UTC
user=(setpriv --reuid=65534 --regid=65534 --clear-groups)

fail() {
  printf 'try_slurm: %s\n' "$@" >&2
  for file in "$work"/log/slurmd "$work"/log/slurmctld "$work"/log/monitor "$work"/out/*; do
    [ -f "$file" ] || continue
    echo "--- $file" >&2
    { grep -vE ' debug| mpi/| MPI: ' "$file" || true; } | tail -n 15 >&2
  done
  exit 1
}
step() { echo "== $* ($SECONDS s)"; }
not() { ! "$@"; }
says() { # TEXT PATTERN
  grep -qE -- "$2" <<< "$1" || fail "expected '$2', but it says: $1"
}
# Until COMMAND is true. The machine may be slow; what is wrong never comes.
until_true() { # WHAT COMMAND...
  local what="$1" end=$((SECONDS + 30))
  shift
  until "$@"; do
    [ "$SECONDS" -lt "$end" ] || fail "not in time: $what"
    sleep 0.1
  done
}

# --- a machine with one GPU ---
mkdir -p "$work"/{bin,lib,log,ctl,d,etc,munge,history,jobs} && mkdir -m 1777 "$work"/{gpu,out}
cp "$build"/{switchyard,switchyardd} "$build/tests/jobs/job_swap" "$work/bin/"
cp "$build/libswitchyard.so" "$build"/fakecuda/lib*.so.1 "$work/lib/"
export PATH="$work/bin:$PATH" FAKECUDA_STATE="$work/gpu/state"
hostname node
ip link set lo up
ip addr add 192.0.2.1/32 dev lo # Slurm asks for an address that is not the host's own
printf '127.0.0.1 localhost\n192.0.2.1 node\n' > "$work/etc/hosts"
printf 'hosts: files\npasswd: files\ngroup: files\n' > "$work/etc/nsswitch.conf"
for file in hosts nsswitch.conf; do mount --bind "$work/etc/$file" "/etc/$file"; done
LD_LIBRARY_PATH="$work/lib" switchyardd --system --history "$work/history" \
  --hpc-job-mapping-dir "$work/jobs" 2> "$work/log/monitor" &
until_true "the monitor listens" test -S /run/switchyard/monitor.sock
chmod 666 "$work"/gpu/*

# --- Slurm, with the guide's lines ---
awk '/^```conf/ {on = 1; next} /^```/ {on = 0} on' docs/guide/slurm.md > "$work/conf"
lines_of() { # FILE: the guide's, with this machine's paths. The simulated GPU has 4 GiB.
  sed -n "s/^$1 *//p" "$work/conf" | sed -e "s#/usr/lib/switchyard/slurm/#$work/lib/#" \
    -e "s#/etc/slurm/#$work/etc/#" -e 's#/dev/nvidia0#/dev/null#' -e 's#=80GiB#=4GiB#' \
    -e 's#^NodeName=node#& NodeAddr=192.0.2.1 CPUs=4 RealMemory=100#'
}
export SLURM_CONF="$work/etc/slurm.conf"
cat > "$SLURM_CONF" << CONF
ClusterName=try
SlurmctldHost=node(192.0.2.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$work/munge/socket
StateSaveLocation=$work/ctl
SlurmdSpoolDir=$work/d
SlurmctldPidFile=$work/ctl/pid
SlurmdPidFile=$work/d/pid
SlurmctldLogFile=$work/log/slurmctld
SlurmdLogFile=$work/log/slurmd
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1,batch_sched_delay=0,sched_min_interval=1
MpiDefault=none
KillWait=1
$(lines_of slurm.conf)
PartitionName=all Nodes=node Default=YES
CONF
lines_of gres.conf > "$work/etc/gres.conf"
lines_of plugstack.conf |
  sed "s#\$# library=$work/lib/libswitchyard.so command=$work/bin/switchyard#" > "$work/etc/plugstack.conf"

# What the guide calls a training and a server: programs that know each word of their memory.
cat > "$work/bin/python" << JOB
#!/bin/bash
export LD_LIBRARY_PATH=$work/lib
exec $work/bin/job_swap 41943040 < $work/out/\$1.in > $work/out/\$1.out
JOB
printf '#!/bin/bash\nexec %s/bin/python train.py\n' "$work" > "$work/train.sh"
printf '#!/bin/sh\necho "$*" >> %s/log/bills\n' "$work" > "$work/bin/logger"
chmod +x "$work"/bin/{python,logger} "$work/train.sh"
# Opens the way to a program: ask NAME WORDS... then writes a line and reads the answer.
declare -A ways
way() { # NAME
  rm -f "$work/out/$1".{in,out}
  mkfifo -m 666 "$work/out/$1".{in,out}
  exec {to}<> "$work/out/$1.in" {from}<> "$work/out/$1.out"
  ways[$1]="$to $from"
}
answer() { # NAME: the next line
  local to from line
  read -r to from <<< "${ways[$1]}"
  read -r -t 30 -u "$from" line || fail "$1 does not answer"
  echo "$line"
}
tell() { # NAME WORDS...
  local to from
  read -r to from <<< "${ways[$1]}"
  echo "${*:2}" >&"$to"
}
ask() { # NAME WORDS...
  tell "$@"
  answer "$1"
}
begins() { # NAME: what it says first
  [ "$(answer "$1")" = ready ] || fail "$1 does not begin"
}

job() { # NUMBER KEY: of the job as `ps` lists it; "none" where there is no such job
  switchyard ps --json | python3 -c '
import json, sys
for job in json.load(sys.stdin)["jobs"]:
    if job["name"] == "slurm-" + sys.argv[1]:
        for key in sys.argv[2].split("."):
            job = job[int(key)] if key.isdigit() else job[key]
        print(job)
        break
else:
    print("none")' "$1" "$2"
}
has() { [ "$(job "$1" "$2")" = "$3" ]; }     # NUMBER KEY VALUE
in_state() { [ "$(squeue -h -j "$1" -o %T 2> /dev/null)" = "$2" ]; } # NUMBER STATE
is_logged() { grep -q "^-t switchyard slurm job $1: job slurm-$1: .* on the GPU" "$work/log/bills"; }
gone() { [ -z "$(squeue -h -j "$1" -o %T 2> /dev/null)" ]; }
waits() { [ "$(squeue -h -j "$1" -o '%T %r')" = "PENDING Resources" ]; }
is_queued() { squeue -h -n "$1" -o %i | grep -q .; } # NAME
is_listed() { switchyard ps -q 2> /dev/null | grep -q .; }
on_gpu() { [ "$(sort "$work/jobs/0" | xargs)" = "$*" ]; } # what dcgm-exporter reads
no_process() { ! ps -eo comm | grep -qE '^(slurmstepd|job_swap|switchyard-task)'; }
is_stopped() { ps -eo stat,comm | grep -q '^T.*job_swap'; }
works() { case "$(job "$1" state)" in paused | stopped | none) false ;; esac; }
is_suspended() { in_state "$1" SUSPENDED && has "$1" residency swapped; }

is_idle() { sinfo -h -o %T 2> /dev/null | grep -q idle; }
daemons() {
  head -c 1024 /dev/urandom > "$work/munge/key"
  chmod 400 "$work/munge/key"
  munged --force --socket="$work/munge/socket" --key-file="$work/munge/key" --num-threads=2 \
    --log-file="$work/log/munge" --pid-file="$work/munge/pid" --seed-file="$work/munge/seed" 2> "$work/log/munged"
  # By these names, and not slurmctld-wlm and slurmd-wlm: there, GRES would silently be none.
  slurmctld
  slurmd -N node
  until_true "the node is idle" is_idle
}

refused() { # PATTERN COMMAND...
  local said code=0
  said="$("${user[@]}" "${@:2}" 2>&1)" || code=$?
  [ "$code" != 0 ] || fail "Slurm takes '${*:2}'"
  says "$said" "$1"
}
bad_values() {
  step "bad values"
  refused "gpu-share-memory: 'much' is not a size such as 20GiB" srun --gpu-share-memory=much true
  refused "gpu-share-weight: '0' is not a weight from 0.01" sbatch --gpu-share-weight=0 --wrap true
  refused "gpu-share-priority: 'urgent' is not high, normal or low" salloc --gpu-share-priority=urgent true
  says "$(srun --help)" 'gpu-share-memory=SIZE'
  [ -z "$(squeue -h)" ] || fail "a refused job is in the queue"
}
no_child() {
  step "a task that waits for any child"
  says "$(cd "$work/out" && "${user[@]}" srun --gpu-share-priority=low python3 -c '
import os
try:
    print("it has waited for", os.wait())
except ChildProcessError:
    print("it has none, and is", os.environ["SWITCHYARD_JOB"])')" "it has none, and is slurm-"
  step "a node without the library"
  mv "$work/lib/libswitchyard.so" "$work/lib/away"
  (cd "$work/out" && refused "this node can keep no share of a GPU" srun --gpu-share-priority=low true)
  [ "$(cd "$work/out" && "${user[@]}" srun echo runs)" = runs ] || fail "a job that asks for nothing fails there"
  mv "$work/lib/away" "$work/lib/libswitchyard.so"
}

train='' serve='' third='' files=''
files_of() { find "$work/gpu" /dev/shm /run/switchyard "$work/jobs" -type f ! -name '*.log' | sort; }
has_no_more_files() { [ -z "$(comm -13 <(echo "$files") <(files_of))" ]; }
start_train() { # WORDS of sbatch...
  step "a job with shards: $*"
  way train.py
  files="$(files_of)"
  train="$(cd "$work/out" && "${user[@]}" sbatch --parsable --output="$work/out/train" "${@:1:$#-1}" "$work/${*: -1}")"
  until_true "the job $train has its memory" has "$train" gpus.0.memory_swappable_bytes 41943040
  begins train.py
  has "$train" memory_quota_bytes 2147483648 || fail "2 of 4 shards are not half of the memory"
  has "$train" share_weight 2.0 || fail "2 shards are not the weight 2: $(job "$train" share_weight)"
  [ "$(ask train.py check)" = right ] || fail "the job's memory is wrong"
}
start_serve() { # WORDS of srun...
  step "a job with options: $*"
  way serve.py
  (cd "$work/out" && exec "${user[@]}" srun --job-name=serve "$@") > "$work/out/serve" 2>&1 &
  until_true "srun's job is there" is_queued serve
  serve="$(squeue -h -n serve -o %i)"
  until_true "the job $serve has its memory" has "$serve" gpus.0.memory_swappable_bytes 41943040
  begins serve.py
  has "$serve" memory_quota_bytes 1073741824 || fail "the memory is not the option's"
  has "$serve" share_weight 4.0 || fail "the weight is not the option's"
  has "$serve" priority high || fail "the priority is not the option's"
  third="$(cd "$work/out" && "${user[@]}" sbatch --parsable --gres=shard:2 --output="$work/out/third" --wrap true)"
  until_true "the third job waits for shards" waits "$third"
  until_true "dcgm-exporter's file has both" on_gpu "$train" "$serve"
}
suspend() {
  step "scontrol suspend"
  ask train.py begin > /dev/null
  scontrol suspend "$train"
  until_true "the memory of the suspended job is out" is_suspended "$train"
  [ "$(job "$train" gpus.0.memory_swapped_bytes)" = 41943040 ] || fail "not all of it is out"
  until_true "Slurm has stopped it" is_stopped
  [ "$(ask serve.py check)" = right ] || fail "the other job does not work meanwhile"
}
resume() {
  step "scontrol resume"
  scontrol resume "$train"
  until_true "the memory of the job is back" has "$train" residency resident
  until_true "the job is not paused" works "$train"
  [ "$(ask train.py end)" = "did end" ] || fail "the resumed job does not answer"
  [ "$(ask train.py check)" = right ] || fail "the values of the resumed job are wrong"
  step "a job that cannot leave within 2 s"
  ask serve.py busy 4000000 > /dev/null # a kernel that ends later
  scontrol suspend "$serve"
  until_true "Slurm has stopped it" is_stopped
  scontrol resume "$serve"
  until_true "what stays is said" grep -qE "'slurm-$serve' is paused, and .*(still on the GPU|swapped out).* after 1500ms" "$work/out/serve"
  until_true "its memory is on the GPU" has "$serve" residency resident
  [ "$(ask serve.py check)" = right ] || fail "the values of the job that stayed are wrong"
}
kill_step() {
  step "kill -9 of a step"
  kill -9 "$(job "$serve" processes.0.pid)"
  until_true "the job has ended" gone "$serve"
  until_true "Switchyard has no such job" has "$serve" name none
  until_true "the third job runs" gone "$third"
  [ "$(ask train.py check)" = right ] || fail "the killed neighbour has done harm"
  tell train.py quit
  until_true "the first job has ended" gone "$train"
  until_true "Switchyard has no job" not is_listed
  until_true "no process is left" no_process
  until_true "dcgm-exporter's file is empty" on_gpu ""
  until_true "nothing is left: $(comm -13 <(echo "$files") <(files_of) | xargs)" has_no_more_files
}

# Each command of the guide comes here.
guide() { # COMMAND
  case "$1" in
    "make -C /usr/share/switchyard/slurm "*)
      make -s -C packaging/slurm FOLDER="$work/lib" ;;
    "cp /usr/share/switchyard/slurm/epilog.sh "*)
      sed "s#^PATH=#&$work/bin:#" packaging/slurm/epilog.sh > "$work/etc/switchyard-epilog.sh"
      chmod +x "$work/etc/switchyard-epilog.sh"
      daemons # an Epilog that is not there would drain the node
      bad_values
      no_child ;;
    "sbatch "*)
      # shellcheck disable=SC2086
      start_train ${1#sbatch } ;;
    "srun "*)
      # shellcheck disable=SC2046
      start_serve $(sed -e 's/^srun //' -e 's/=20GiB/=1GiB/' <<< "$1") ;;
    "switchyard ps") says "$(switchyard ps)" "slurm-$train" ;;
    "scontrol suspend "*) suspend ;;
    "scontrol resume "*) resume; kill_step ;;
    "switchyard report --by slurmjob"*)
      step "bills"
      says "$($1)" "^ *$train +nobody "
      says "$($1)" "^ *$serve +nobody " ;;
    "switchyard report --slurm-job "*)
      says "$(switchyard report --slurm-job "$train")" "^job slurm-$train: .* on the GPU"
      until_true "the Epilog has told the bill" is_logged "$serve" ;;
    *) fail "a command of the guide that nothing runs: $1" ;;
  esac
}

step "the guide of Slurm"
awk '/^```conf/ {conf = 1; next} /^```/ {if (conf) conf = 0; else on = !on; next} on' docs/guide/slurm.md > "$work/commands"
[ "$(grep -c . "$work/commands")" -ge 9 ] || fail "the guide has too few commands"
[ "$(wc -l < docs/guide/slurm.md)" -le 40 ] || fail "the guide has more than 40 lines"
while read -r line <&3; do guide "$line"; done 3< "$work/commands"

step "the prolog, without a plugin"
: > "$work/etc/plugstack.conf"
sed -e "s#^library=.*#library=$work/lib/libswitchyard.so#" -e 's/^shards_of_gpu=0/shards_of_gpu=4/' \
  -e 's/^memory_of_gpu=0/memory_of_gpu=4096/' packaging/slurm/task-prolog.sh > "$work/etc/prolog.sh"
chmod +x "$work/etc/prolog.sh"
echo "TaskProlog=$work/etc/prolog.sh" >> "$SLURM_CONF"
scontrol reconfigure
way train.py
train="$(cd "$work/out" && "${user[@]}" sbatch --parsable --gres=shard:1 --output="$work/out/prolog" "$work/train.sh")"
until_true "the job $train begins" works "$train"
begins train.py
has "$train" memory_quota_bytes 1073741824 || fail "1 of 4 shards is not a quarter of the memory"
[ "$(ask train.py check)" = right ] || fail "the job's memory is wrong"
tell train.py quit
until_true "the job has ended" gone "$train"
echo "try_slurm: all is well ($SECONDS s)"

# What somebody does with the Debian package, in a root that has nothing else. Fails with the first thing that is not as it should be.
apt-get update -qq
apt-get install -qq -y --no-install-recommends /weir.deb
weir --version
test -s /usr/share/man/man1/weir.1
test -s /usr/share/bash-completion/completions/weir
test -s /lib/systemd/system/weir-coordinator.service
test -s /lib/systemd/system/weir-worker.service
getent passwd weir
mkdir /tmp/work && cd /tmp/work
# An example, whose operators are in the binary.
weir example new pageviews
cd pageviews
weir run job.toml
ls out
test -n "$(cat out/*.jsonl out/*.json 2>/dev/null | head -1)"
# A cluster, as the user of the units, with what the units run.
weir cluster init /etc/weir/cluster --node coordinator --node worker
cp -r /etc/weir/cluster/nodes/coordinator /etc/weir/cluster/nodes/worker /etc/weir/
chown -R weir:weir /etc/weir/coordinator /etc/weir/worker
install -d -o weir -g weir /srv/weir/checkpoints
as_weir() { runuser -u weir -- "$@"; }
. /etc/default/weir-coordinator
. /etc/default/weir-worker
runuser -u weir -- /usr/bin/weir coordinator --identity /etc/weir/coordinator --data-dir /var/lib/weir $WEIR_COORDINATOR_ARGS &
coordinator=$!
runuser -u weir -- /usr/bin/weir worker --identity /etc/weir/worker --data-dir /var/lib/weir $WEIR_WORKER_ARGS --slots 2 &
worker=$!
for _ in $(seq 100); do
  as_weir weir worker ls --data-dir /var/lib/weir 2>/dev/null | grep -q worker && break
  sleep 0.1
done
as_weir weir worker ls --data-dir /var/lib/weir
kill "$worker" "$coordinator"
wait || true
apt-get remove -qq -y weir
! test -e /usr/bin/weir
echo "the package installs, runs and goes"

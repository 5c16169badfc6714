# Installs, uses, upgrades, removes and purges the package, in a root of its own over this machine's: nothing of it stays.
# Arguments: an empty folder, a package, a package of a later version, and the README's lines that install the package, switch its two
# services on, remove it and purge it. Runs in mount, network and process namespaces as root.
set -eu
scratch=$1
mount -t tmpfs tmpfs "$scratch"
mkdir "$scratch/upper" "$scratch/work" "$scratch/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$scratch/upper,workdir=$scratch/work" "$scratch/root"
mount -t proc proc "$scratch/root/proc"
mount --rbind /dev "$scratch/root/dev"
# Without /run/systemd/system no script talks to an init system.
for folder in run tmp; do mount -t tmpfs tmpfs "$scratch/root/$folder"; done
mkdir -p "$scratch/root/tmp/clone/target/debian"
cp "$2" "$scratch/root/tmp/clone/target/debian/headend_0.1.0-1_any.deb"
cp "$3" "$scratch/root/tmp/new.deb"
shift 3
for line in install user machine remove purge; do printf '%s\n' "$1" >"$scratch/root/tmp/$line"; shift; done
ip link set lo up

cat >"$scratch/root/tmp/inside" <<'INSIDE'
set -eu
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 HOME=/root DEBIAN_FRONTEND=noninteractive
file=/etc/headend/headend.toml
note='{"title": "Milk", "text": "Two litres"}'
step() { echo "== $*"; }
not() { if "$@"; then echo "unexpected: $*"; exit 1; fi; }

# Root runs them, and a machine of one administrator asks for no password. apt asks nothing, and nothing is fetched.
printf '#!/bin/sh\nexec "$@"\n' >/usr/local/bin/sudo
echo 'APT::Get::Assume-Yes "true";' >/etc/apt/apt.conf.d/00yes
# No manager runs here. The stand-in looks for the unit where a manager would, and for the program that it starts.
cat >/usr/local/bin/systemctl <<'SYSTEMCTL'
#!/bin/sh
set -e
folder=/usr/lib/systemd/system
if [ "$1" = --user ]; then folder=/usr/lib/systemd/user; shift; fi
[ "$1 $2 $3" = 'enable --now headend' ] || exit 1
start=$(sed -n 's/^ExecStart=//p' $folder/headend.service)
path=$(sed -n 's/^Environment=PATH=//p' $folder/headend.service)
env -i "PATH=${path:-/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin}" sh -c "exec ${start%% serve*} --version"
SYSTEMCTL
chmod 755 /usr/local/bin/sudo /usr/local/bin/systemctl
# A line of the README, as it is printed.
line() { (cd /tmp/clone && sh -ec "$(cat /tmp/"$1")"); }

# The system unit's start: its user, its folders, its command.
start() {
  install -d -o headend -g headend -m 0700 /var/lib/headend
  install -d -o headend -g headend -m 0755 /run/headend
  (cd / && exec env -i PATH="$PATH" HOME=/var/lib/headend STATE_DIRECTORY=/var/lib/headend RUNTIME_DIRECTORY=/run/headend \
    setpriv --reuid headend --regid headend --init-groups --no-new-privs --bounding-set -all \
    /usr/bin/headend serve --config $file) >/tmp/out 2>/tmp/log &
  daemon=$!
  tries=0
  until headend tools 2>/dev/null | grep -q notes__add; do
    tries=$((tries + 1))
    [ $tries -lt 200 ] || { cat /tmp/out /tmp/log; exit 1; }
    sleep 0.05
  done
}
stop() {
  kill -TERM "$daemon"
  wait "$daemon"
}

step install
begun=$(date +%s%N)
# A machine that lacks a package for apt, and cannot fetch it, takes the file as it is.
if apt-get --simulate --no-download install /tmp/clone/target/debian/headend_*.deb >/tmp/simulated 2>&1; then
  line install
else
  echo "left out: $(cat /tmp/install): $(tail -n 1 /tmp/simulated)"
  dpkg --force-depends --no-triggers --install /tmp/clone/target/debian/headend_*.deb
fi
id headend
stat -c '%a %U' $file | grep -x '644 root'
for path in /usr/lib/systemd/system/headend.service /usr/lib/systemd/user/headend.service /usr/lib/tmpfiles.d/headend.conf \
  /usr/lib/systemd/system/headend.socket /usr/lib/systemd/user/headend.socket \
  /usr/share/man/man1/headend.1* /usr/share/man/man1/headend-approve.1* /usr/share/bash-completion/completions/headend \
  /usr/share/zsh/vendor-completions/_headend /usr/share/fish/vendor_completions.d/headend.fish; do
  test -s $path || { echo "missing: $path"; exit 1; }
done
headend check >/dev/null
line user | grep '^headend '
line machine | grep '^headend '

step start
start
headend call time__now
echo "from the package to the first call: $((($(date +%s%N) - begun) / 1000000)) ms"
not headend call notes__add "$note"
id=$(headend approvals --json | grep -o '"id":"[^"]*"' | head -n 1 | cut -d '"' -f 4)
headend approve "$id" --for always
headend call notes__add "$note"

step upgrade
echo '# A line of the administrator.' >>$file
dpkg --force-depends --no-triggers --install /tmp/new.deb
dpkg-query -W -f '${Version}\n' headend | grep -x '99.0-1'
stop
start
# The grant of before.
headend call notes__add "$note"
grep -q 'of the administrator' $file

step remove
stop
line remove
not test -e /usr/bin/headend
test -e $file
test -e /var/lib/headend/headend.db

step purge
line purge
not test -e /etc/headend
not test -e /var/lib/headend
echo done
INSIDE
exec chroot "$scratch/root" /bin/sh /tmp/inside

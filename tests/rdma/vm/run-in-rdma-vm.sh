#!/usr/bin/env bash
# run-in-rdma-vm.sh - run a command in a throw-away VM that has RDMA devices. It builds nothing; README.md here tells
# what runs in it, test-run-in-rdma-vm.sh tests it.
#
#   run-in-rdma-vm.sh [options] [--] CMD [ARG...]
#   run-in-rdma-vm.sh --prepare            fetch + unpack the guest kernel only
#
# For machines whose own kernel has no InfiniBand/RDMA support.  A stock Debian
# kernel with soft-RoCE (rdma_rxe) is booted in qemu (software emulation, no
# KVM needed).  The guest's root is this machine's root file system: read-only
# through 9p, below a RAM overlay, so every program and library built here runs
# unchanged, CMD sees the same paths and the same working directory, and
# nothing CMD writes survives (except below --rw directories).
#
# The guest has two RDMA devices, the two ends of one veth cable:
#     rxe0  on veth0  10.99.0.1/24  fd99::1/64
#     rxe1  on veth1  10.99.0.2/24  fd99::2/64
# GID index 1 = RoCEv2 over IPv4, 2 = RoCEv2 over IPv6 (what UCX needs on rxe),
# so traffic rxe0<->rxe1 crosses a "wire" that can be cut, delayed or made lossy
# (rdma-vm-link down | up | loss PERCENT | delay MS | clear).  Both ends are in one network
# namespace: rxe of Linux 6.1 works in the initial one only.
#
# Options (each also an environment variable):
#   --timeout S   RDMA_VM_TIMEOUT  seconds CMD may run            (default 120)
#   --mem MiB     RDMA_VM_MEM      guest memory                  (default 2048)
#   --smp N       RDMA_VM_SMP      guest processors                 (default 2)
#   --mtu N       RDMA_VM_MTU      MTU of the veth cable         (default 4200)
#   --net KIND    RDMA_VM_NET      veth2 | none   (default veth2; none: only
#                                  loads rdma_rxe, CMD makes its own links)
#   --rw DIR      RDMA_VM_RW       host directory CMD may write to, seen in the
#                                  guest at the same path (repeatable; the
#                                  variable takes a colon-separated list)
#   --env NAME    RDMA_VM_ENV      pass this variable on (repeatable; the
#                                  variable takes a space-separated list).
#                                  PATH, HOME, LD_LIBRARY_PATH, LANG, TERM and
#                                  RDMA_VM_* are always passed.
#   --no-prepare                   without a guest kernel: skipped, not downloaded
#   --verbose     RDMA_VM_VERBOSE=1  show the guest's console at the end too
#   RDMA_VM_CACHE   where the guest kernel lives (default build/rdma-vm of this tree); what a run
#                   needs for its time is in there, too
#   RDMA_VM_BOOT_TIMEOUT  seconds for boot + set-up (default 180)
#   RDMA_VM_ACCEL   qemu accelerator (default tcg,thread=multi; kvm needs a processor that virtualises,
#                   README.md)
#   RDMA_VM_KERNEL_PKG  Debian package to use (default: what linux-image-amd64
#                   of the configured apt sources depends on)
#   RDMA_VM_KERNEL_DEB  or: this linux-image .deb file (no download)
#   RDMA_VM_EXTRA_MODULES  colon-separated .ko files to insmod (e.g. a siw.ko)
#
# Exit status: CMD's own; 124 when CMD (or the boot) ran out of time; 125 when
# the VM itself failed (its console follows on stderr); 77 when a prerequisite
# is missing here (so that a test harness can call it "skipped").
#
# Packages: tools/setup.sh rdma-vm installs them.
set -u
set -o pipefail
me=run-in-rdma-vm

usage() { sed -n '2,/^set -u/{/^set -u/d;s/^# \{0,1\}//;p}' "$0"; }
say() { printf '%s: %s\n' "$me" "$*" >&2; }
skip() { echo "skipped: $me: $*"; exit 77; }

timeout_s=${RDMA_VM_TIMEOUT:-120}
boot_s=${RDMA_VM_BOOT_TIMEOUT:-180}
mem=${RDMA_VM_MEM:-2048}
smp=${RDMA_VM_SMP:-2}
mtu=${RDMA_VM_MTU:-4200}
net=${RDMA_VM_NET:-veth2}
accel=${RDMA_VM_ACCEL:-tcg,thread=multi}
verbose=${RDMA_VM_VERBOSE:-0}
cache=${RDMA_VM_CACHE:-$(realpath -m "$(dirname "$0")/../../../build/rdma-vm")}
prepare_only=0 no_prepare=0
rw=()
IFS=: read -r -a rw <<<"${RDMA_VM_RW:-}"
read -r -a envs <<<"${RDMA_VM_ENV:-}"

while [ $# -gt 0 ]; do
    case $1 in
        --timeout) timeout_s=$2; shift 2 ;;
        --mem) mem=$2; shift 2 ;;
        --smp) smp=$2; shift 2 ;;
        --mtu) mtu=$2; shift 2 ;;
        --net) net=$2; shift 2 ;;
        --rw) rw+=("$2"); shift 2 ;;
        --env) envs+=("$2"); shift 2 ;;
        --verbose) verbose=1; shift ;;
        --prepare) prepare_only=1; shift ;;
        --no-prepare) no_prepare=1; shift ;;
        -h|--help) usage; exit 0 ;;
        --) shift; break ;;
        -*) say "unknown option $1"; exit 2 ;;
        *) break ;;
    esac
done
[ "$prepare_only" = 1 ] || [ $# -gt 0 ] || { usage >&2; exit 2; }

# ---------------------------------------------------------------- the kernel
# Modules the initramfs needs to reach its root; the rest is loaded from the
# unpacked kernel package with modprobe.
boot_modules='virtio_pci 9pnet_virtio 9p overlay virtio_console ib_uverbs rdma_ucm rdma_rxe veth'

prepare() {
    local t kv pkg deb
    for t in cpio xz depmod python3 dpkg-deb; do
        command -v "$t" >/dev/null || skip "needs $t (tools/setup.sh rdma-vm)"
    done
    [ -x /bin/busybox ] || skip 'needs /bin/busybox (tools/setup.sh rdma-vm)'
    mkdir -p "$cache" || skip "cannot make $cache"
    local w
    w=$(mktemp -d "$cache/.new.XXXXXX") || skip "cannot write in $cache"
    if [ -n "${RDMA_VM_KERNEL_DEB:-}" ]; then
        deb=$RDMA_VM_KERNEL_DEB
    else
        pkg=${RDMA_VM_KERNEL_PKG:-$(apt-cache depends linux-image-amd64 2>/dev/null |
            awk '$1 == "Depends:" && $2 ~ /^linux-image-/ {print $2; exit}')}
        [ -n "$pkg" ] || { rm -rf "$w"; skip 'no linux-image package known to apt (apt-get update?)'; }
        (cd "$w" && apt-get download "$pkg" >apt.log 2>&1) ||
            { cat "$w/apt.log" >&2; rm -rf "$w"; skip "cannot download $pkg"; }
        deb=$(echo "$w"/*.deb)
    fi
    dpkg-deb -x "$deb" "$w/kernel" || { rm -rf "$w"; skip "cannot unpack $deb"; }
    rm -f "$w"/*.deb
    # Debian 13 and newer ship usr/lib/modules
    [ -d "$w/kernel/lib/modules" ] || { mkdir -p "$w/kernel/lib" && mv "$w/kernel/usr/lib/modules" "$w/kernel/lib/"; }
    kv=$(ls "$w/kernel/lib/modules")
    # Only what RDMA tests may want; the whole tree is 400 MB.
    (cd "$w/kernel/lib/modules/$kv/kernel" &&
        find . -name '*.ko*' | grep -vE '^\./(drivers/(virtio|char|infiniband/(core|sw|ulp)|net/(veth|dummy|tun|virtio_net|netdevsim|bonding|macvlan|vxlan|ifb|vrf|net_failover)|block/virtio)|net/|fs/(9p|overlayfs|fuse|netfs|fscache|configfs|nls)|lib|crypto|arch/x86/crypto|mm)' |
        xargs -r rm -f)
    find "$w/kernel/lib/modules" -type d -empty -delete
    depmod -b "$w/kernel" "$kv" || { rm -rf "$w"; skip 'depmod failed'; }
    find "$w/kernel/lib/modules" -name 'rdma_rxe.ko*' | grep -q . ||
        { rm -rf "$w"; skip "kernel $kv has no rdma_rxe"; }
    # An uncompressed kernel boots through PVH and spares the guest the
    # (emulated, slow) decompression: 3 s of boot instead of 7.
    python3 - "$w/kernel/boot/vmlinuz-$kv" "$w/vmlinux" <<'PY' || cp "$w/kernel/boot/vmlinuz-$kv" "$w/vmlinux"
import subprocess, sys
d = open(sys.argv[1], 'rb').read()
for magic, cmd in ((b'\xfd7zXZ\x00', ['xz', '-dc']), (b'\x28\xb5\x2f\xfd', ['zstd', '-dcq']),
                   (b'\x1f\x8b\x08', ['gzip', '-dc'])):
    p = d.find(magic)
    while p >= 0:
        try:
            o = subprocess.run(cmd, input=d[p:], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
        except OSError:
            break
        if o[:4] == b'\x7fELF':
            open(sys.argv[2], 'wb').write(o)
            sys.exit(0)
        p = d.find(magic, p + 1)
sys.exit(1)
PY
    # --- initramfs: busybox, the boot modules in load order, /init
    local r=$w/initrd m list
    mkdir -p "$r"/{bin,mod,lower,ram,guest,proc,sys,dev}
    cp /bin/busybox "$r/bin/busybox"
    list=
    for m in $boot_modules; do
        list+=$(modprobe -d "$w/kernel" -S "$kv" --show-depends "$m" | awk '$1 == "insmod" {print $2}')$'\n'
    done
    : >"$r/mod/order"
    for m in $(printf '%s' "$list" | awk 'NF && !s[$0]++'); do
        case $m in
            *.ko.xz) xz -dc "$m" >"$r/mod/$(basename "${m%.xz}")"; m=${m%.xz} ;;
            *.ko.zst) zstd -dcq "$m" >"$r/mod/$(basename "${m%.zst}")"; m=${m%.zst} ;;
            *) cp "$m" "$r/mod/" ;;
        esac
        basename "$m" >>"$r/mod/order"
    done
    cat >"$r/init" <<'INIT'
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
die() { echo "rdma-vm: initramfs: $*"; reboot -f; }
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
while read -r m; do insmod "/mod/$m" || echo "rdma-vm: insmod $m failed"; done </mod/order
o=trans=virtio,version=9p2000.L,msize=512000
mount -t 9p -o "ro,$o,cache=loose" hostroot /lower || die 'no 9p root'
mount -t tmpfs -o mode=755 ram /ram
mkdir /ram/up /ram/work
mount -t overlay -o lowerdir=/lower,upperdir=/ram/up,workdir=/ram/work overlay /guest || die 'no overlay'
umount /sys /proc
mkdir -p /guest/run /guest/proc /guest/sys /guest/dev
mount --move /dev /guest/dev
mount -t tmpfs -o mode=755 run /guest/run
mkdir /guest/run/rdma-vm
mount -t 9p -o "rw,$o,cache=none" ctl /guest/run/rdma-vm || die 'no control share'
exec switch_root /guest /bin/sh /run/rdma-vm/guest.sh
die 'switch_root failed'
INIT
    chmod 755 "$r/init"
    (cd "$r" && find . | cpio -o -H newc --quiet) >"$w/initrd.img" || { rm -rf "$w"; skip 'cpio failed'; }
    rm -rf "$r"
    echo "$kv" >"$w/version"
    # last one to finish wins; a concurrent --prepare is harmless
    rm -rf "$cache/old.$$"
    [ -e "$cache/vm" ] && mv -T "$cache/vm" "$cache/old.$$"
    chmod 755 "$w"
    mv -T "$w" "$cache/vm" || { rm -rf "$w"; [ -e "$cache/vm/version" ] || skip 'cannot install the kernel'; }
    rm -rf "$cache/old.$$"
    say "prepared kernel $kv in $cache/vm"
}

qemu=$(command -v qemu-system-x86_64) || skip 'needs qemu-system-x86_64 (tools/setup.sh rdma-vm)'
[ "$prepare_only" = 1 ] && { prepare; exit 0; }
if [ ! -e "$cache/vm/version" ]; then
    [ "$no_prepare" = 0 ] || skip "no guest kernel in $cache (tools/setup.sh rdma-vm)"
    prepare
fi
vm=$cache/vm
kv=$(cat "$vm/version")

# ------------------------------------------------------------ control share
ctl=$(mktemp -d "$cache/run.XXXXXX") || exit 125
qpid= ; c1= ; c2=
cleanup() {
    # only what this script started, by pid
    if [ -n "$qpid" ] && kill -0 "$qpid" 2>/dev/null; then
        kill -TERM "$qpid" 2>/dev/null
        for _ in 1 2 3 4 5 6 7 8 9 10; do kill -0 "$qpid" 2>/dev/null || break; sleep 0.2; done
        kill -KILL "$qpid" 2>/dev/null
    fi
    [ -n "$qpid" ] && wait "$qpid" 2>/dev/null
    [ -n "$c1" ] && kill "$c1" 2>/dev/null
    [ -n "$c2" ] && kill "$c2" 2>/dev/null
    rm -rf "$ctl"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

printf '%s\0' "$@" >"$ctl/argv"
pwd -P >"$ctl/cwd"
for v in PATH HOME LD_LIBRARY_PATH LANG TERM "${envs[@]}" $(compgen -v RDMA_VM_); do
    [ -n "$v" ] && [ -n "${!v+x}" ] && printf '%s=%s\0' "$v" "${!v}"
done >"$ctl/env"
printf '%s\n' "$vm" >"$ctl/vmdir"
{
    printf 'kv=%q timeout_s=%q mtu=%q net=%q\n' "$kv" "$timeout_s" "$mtu" "$net"
    printf 'extra=%q\n' "${RDMA_VM_EXTRA_MODULES:-}"
} >"$ctl/conf"

fs=()
i=0
: >"$ctl/rwdirs"
for d in "${rw[@]}"; do
    [ -n "$d" ] || continue
    d=$(cd "$d" 2>/dev/null && pwd -P) || { say "--rw $d: no such directory"; exit 2; }
    printf 'rw%d %s\n' "$i" "$d" >>"$ctl/rwdirs"
    fs+=(-virtfs "local,path=$d,mount_tag=rw$i,security_model=none,multidevs=remap")
    i=$((i + 1))
done

# --------------------------------------------------- what the guest executes
cat >"$ctl/guest.sh" <<'GUEST'
# pid 1 of the guest, in the overlay root
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
c=/run/rdma-vm
. $c/conf
mount -t proc proc /proc
mount -t sysfs sys /sys
mkdir -p /dev/pts /dev/shm
mount -t devpts -o mode=620,ptmxmode=666 devpts /dev/pts
mount -t tmpfs -o mode=1777 shm /dev/shm
mount -t debugfs debugfs /sys/kernel/debug 2>/dev/null
ln -sf /proc/self/fd /dev/fd; ln -sf /proc/self/fd/0 /dev/stdin
ln -sf /proc/self/fd/1 /dev/stdout; ln -sf /proc/self/fd/2 /dev/stderr
hostname rdma-vm
printf '127.0.0.1 localhost rdma-vm\n10.99.0.1 rxe0\n10.99.0.2 rxe1\n' >/etc/hosts
fail() { echo "rdma-vm: $*"; echo "$*" >$c/failed; sync; /bin/busybox reboot -f; sleep 60; }
exec >/dev/console 2>&1 </dev/null
vm=$(cat $c/vmdir)
mkdir -p /lib/modules/$kv
mount --bind "$vm/kernel/lib/modules/$kv" /lib/modules/$kv || fail 'no modules'
while read -r tag dir; do
    mount -t 9p -o rw,trans=virtio,version=9p2000.L,msize=512000,cache=none "$tag" "$dir" || fail "cannot mount $dir"
done <$c/rwdirs
ulimit -l unlimited; ulimit -n 65536; ulimit -c 0
ip link set lo up
[ -e /sys/module/rdma_rxe ] || fail 'no rdma_rxe'
old_ifs=$IFS; IFS=:; for m in $extra; do insmod "$m" || fail "insmod $m"; done; IFS=$old_ifs
if [ "$net" = veth2 ]; then
    ip link add veth0 mtu $mtu type veth peer name veth1 mtu $mtu || fail 'no veth'
    # both ends live in one network namespace (rxe needs init_net): let the
    # kernel take packets that come from one of its own addresses
    for i in all veth0 veth1; do
        echo 1 >/proc/sys/net/ipv4/conf/$i/accept_local
        echo 0 >/proc/sys/net/ipv4/conf/$i/rp_filter
        echo 1 >/proc/sys/net/ipv4/conf/$i/arp_ignore
    done
    for i in 0 1; do
        echo 0 >/proc/sys/net/ipv6/conf/veth$i/accept_dad
        echo 0 >/proc/sys/net/ipv6/conf/veth$i/accept_ra
        echo 1 >/proc/sys/net/ipv6/conf/veth$i/keep_addr_on_down
        ip addr add 10.99.0.$((i + 1))/24 dev veth$i
        ip link set veth$i up
    done
    # IPv6 finds its own addresses before it looks at the outgoing device:
    # ask for the cable first where a device is named (rxe does), else local
    {
        echo "route add fd99::2 dev veth0 table 200"
        echo "route add fd99::1 dev veth1 table 201"
        echo "rule add pref 5 iif veth0 lookup local"
        echo "rule add pref 6 iif veth1 lookup local"
        echo "rule add pref 10 oif veth0 lookup 200"
        echo "rule add pref 11 oif veth1 lookup 201"
        echo "rule add pref 100 lookup local"
        echo "rule del pref 0"
    } | ip -6 -batch - || fail 'no IPv6 rules'
    for i in 0 1; do
        rdma link add rxe$i type rxe netdev veth$i || fail "no rxe$i"
        ip addr add fd99::$((i + 1))/64 dev veth$i nodad # after IPv4: GID 2
    done
fi
# rdma-vm-link: what a test does to the cable
cat >/usr/local/bin/rdma-vm-link <<'LINK'
#!/bin/sh
# rdma-vm-link down | up | loss PERCENT | delay MS | clear
case $1 in
    down) ip link set veth0 down ;;   # ports go DOWN, IBV_EVENT_PORT_ERR
    up) ip link set veth0 up && for i in 0 1; do
            ip -6 route replace fd99::$((2 - i)) dev veth$i table 20$i || exit 1
        done ;;
    loss) for i in 0 1; do tc qdisc replace dev veth$i root netem loss "$2%" || exit 1; done ;;
    delay) for i in 0 1; do tc qdisc replace dev veth$i root netem delay "$2ms" || exit 1; done ;;
    clear) for i in 0 1; do tc qdisc del dev veth$i root 2>/dev/null; done; exit 0 ;;
    *) sed -n 2p "$0" >&2; exit 2 ;;
esac
LINK
chmod 755 /usr/local/bin/rdma-vm-link
echo "rdma-vm: ready $(cut -d' ' -f1 /proc/uptime)"
touch $c/ready
bash $c/cmd.sh
dmesg >$c/dmesg
cut -d' ' -f1 /proc/uptime >$c/uptime
grep -E '^(MemTotal|MemFree|MemAvailable)' /proc/meminfo >$c/meminfo
sync
/bin/busybox reboot -f
sleep 60
GUEST
cat >"$ctl/cmd.sh" <<'CMDSH'
c=/run/rdma-vm
. $c/conf
mapfile -d '' -t argv <$c/argv
mapfile -d '' -t env <$c/env
cd "$(cat $c/cwd)" || cd /
mkfifo /run/o /run/e
for p in /sys/class/virtio-ports/*; do
    case $(cat "$p/name") in
        rdmavm.out) out=/dev/${p##*/} ;;
        rdmavm.err) err=/dev/${p##*/} ;;
    esac
done
cat </run/o >"$out" & a=$!
cat </run/e >"$err" & b=$!
env -i "${env[@]}" timeout -k 5 "$timeout_s" "${argv[@]}" </dev/null >/run/o 2>/run/e
rc=$?
# the readers end with CMD's last writer; do not wait for stray daemons
for _ in $(seq 50); do
    kill -0 $a 2>/dev/null || kill -0 $b 2>/dev/null || break
    sleep 0.1
done
echo $rc >$c/rc.new && mv $c/rc.new $c/rc
CMDSH

# ------------------------------------------------------------------ the boot
mkfifo "$ctl/out" "$ctl/err"
cat <"$ctl/out" & c1=$!
cat <"$ctl/err" >&2 & c2=$!
# An emulated processor that the guest's kernel and this machine's programs are content with; with KVM its own.
cpu=max,la57=off,vendor=GenuineIntel,family=6,model=85,stepping=7
[[ $accel != kvm* ]] || cpu=host
pdeath=()
setpriv --pdeathsig KILL true 2>/dev/null && pdeath=(setpriv --pdeathsig KILL)
"${pdeath[@]}" "$qemu" -name rdma-vm -accel "$accel" -M q35 -cpu "$cpu" -m "$mem" -smp "$smp" \
    -nodefaults -no-user-config -display none -monitor none -no-reboot \
    -serial "file:$ctl/console" \
    -kernel "$vm/vmlinux" -initrd "$vm/initrd.img" \
    -append "console=ttyS0 quiet panic=-1 reboot=t mitigations=off tsc=reliable no_timer_check random.trust_cpu=on audit=0" \
    -virtfs local,path=/,mount_tag=hostroot,security_model=none,readonly=on,multidevs=remap \
    -virtfs "local,path=$ctl,mount_tag=ctl,security_model=none" \
    "${fs[@]}" \
    -device virtio-serial-pci,max_ports=4 \
    -chardev "file,id=o,path=$ctl/out" -device virtserialport,chardev=o,nr=1,name=rdmavm.out \
    -chardev "file,id=e,path=$ctl/err" -device virtserialport,chardev=e,nr=2,name=rdmavm.err \
    </dev/null >"$ctl/qemu.log" 2>&1 &
qpid=$!

start=$SECONDS
ready=
timed_out=
while kill -0 "$qpid" 2>/dev/null; do
    if [ -z "$ready" ] && [ -e "$ctl/ready" ]; then ready=$SECONDS; fi
    [ "$verbose" = 0 ] || awk '/^VmHWM/ {print "qemu VmHWM", $2, $3}' "/proc/$qpid/status" >"$ctl/hwm.new" 2>/dev/null &&
        [ -s "$ctl/hwm.new" ] && mv "$ctl/hwm.new" "$ctl/hwm"
    if [ -z "$ready" ]; then
        [ $((SECONDS - start)) -le "$boot_s" ] || { timed_out=boot; break; }
    else
        # the guest ends CMD itself; this is for a guest that hangs
        [ $((SECONDS - ready)) -le $((timeout_s + 30)) ] || { timed_out=guest; break; }
    fi
    sleep 0.1
done
[ -z "$timed_out" ] || kill -TERM "$qpid" 2>/dev/null
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do kill -0 "$qpid" 2>/dev/null || break; sleep 0.1; done
kill -KILL "$qpid" 2>/dev/null
wait "$qpid" 2>/dev/null
qpid=
# If qemu never opened the FIFOs their readers still wait: end them.  If it
# did, they see its end of file and finish by themselves.
for _ in 1 2 3 4 5 6 7 8 9 10; do
    kill -0 "$c1" 2>/dev/null || kill -0 "$c2" 2>/dev/null || break
    sleep 0.1
done
kill "$c1" "$c2" 2>/dev/null
c1= ; c2=

if [ "$verbose" = 1 ]; then
    { echo "--- guest console"; cat "$ctl/console"; echo "--- guest dmesg"; cat "$ctl/dmesg"; cat "$ctl/uptime" "$ctl/meminfo" "$ctl/hwm"; } >&2 2>/dev/null
fi
if [ -e "$ctl/rc" ]; then
    rc=$(cat "$ctl/rc")
    [ "$rc" != 124 ] || say "the command ran past $timeout_s s"
    exit "$rc"
fi
{ echo "--- qemu"; tail -n 20 "$ctl/qemu.log"; echo "--- guest console"; tail -n 40 "$ctl/console"; } >&2 2>/dev/null
case $timed_out in
    boot) say "no boot within $boot_s s"; exit 124 ;;
    guest) say "the guest hung"; exit 124 ;;
esac
say "the VM ended without a result"
exit 125

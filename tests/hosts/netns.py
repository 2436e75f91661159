#!/usr/bin/env python3
"""Hosts on one machine: network namespaces around a switch, with links that can be slowed, cut and made lossy.

    h0 eth0 ---- p0 [ ]
    h1 eth0 ---- p1 [ switch: a bridge ]     a link has a rate in both directions, its frames can be dropped in either
    ...             [ ]

    with netns.Hosts(2, rate="1gbit") as hosts:
        hosts[0].start(["hocket", "serve", ...])
        hosts[1].unplug()

    netns.py 2 1gbit COMMAND...     runs COMMAND in every host, with RANK, WORLD_SIZE, MASTER_ADDR

A host has a network, a name (h0, h1, ...), /etc/hosts and shared memory of its own; files and processes are the machine's.
A process holds the host's namespaces and ends with the program that made the host, however that ends. So nothing remains: hosts
have no names in the file system, and nothing is in the machine's own network. Needs root, iproute2 and util-linux.
"""

import ctypes
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading

SUBNET = "10.231.7"  # the same for every switch: each has a namespace of its own
CLONE_NEWNET = 0x40000000
DIRECTIONS = {"to": ("egress",), "from": ("ingress",), "both": ("egress", "ingress")}  # directions of a host, as its switch port names them
UNITS = {"k": 1e3, "m": 1e6, "g": 1e9}
# Settings of all namespaces: TCP as it is tuned for ranks, and no frames from other sources.
SETTINGS = {
    "net/ipv6/conf/all/disable_ipv6": "1",
    "net/ipv4/tcp_slow_start_after_idle": "0",
    "net/ipv4/tcp_no_metrics_save": "1",
    "net/ipv4/tcp_wmem": "4096 65536 16777216",
    "net/ipv4/tcp_rmem": "4096 131072 16777216",
}

_libc = ctypes.CDLL(None, use_errno=True)
_why_not = None


class NoHosts(Exception):
    """This machine does not allow hosts; the text says why."""


def why_not():
    """Returns the reason why this machine allows no hosts; empty if it does."""
    global _why_not
    if _why_not is None:
        _why_not = _try()
    return _why_not


def _try():
    if os.geteuid() != 0:
        return "namespaces need root"
    for tool in ("ip", "tc", "unshare", "nsenter", "mount"):
        if not shutil.which(tool):
            return f"there is no {tool} (packages iproute2, util-linux)"
    try:
        with Hosts(1, "1gbit") as hosts:
            hosts[0].loss(1)
    except NoHosts as reason:
        return str(reason)
    return ""


def _run(command, text=None):
    done = subprocess.run(command, input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=20)
    if done.returncode:
        words = " ".join(command) + (f" <<< {text.strip()}" if text else "")
        raise NoHosts(f"{words}: {done.stdout.strip() or f'exit {done.returncode}'}")
    return done.stdout


class _Namespaces:
    """Namespaces held by a process that waits until this program ends: it reads a pipe that only this program holds."""

    def __init__(self, kinds, setup):
        script = f"{{ {setup} ; }} 2>&1 && echo ready && exec cat"
        self.holder = subprocess.Popen(
            ["unshare", *kinds, "--", "sh", "-ec", script],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        told = []
        for line in self.holder.stdout:
            if line == "ready\n":
                break
            told.append(line)
        else:
            self.close()
            raise NoHosts("namespaces are not allowed: " + "".join(told).strip())
        self.pid = self.holder.pid

    def inside(self, *kinds):
        return ["nsenter", f"--target={self.pid}", *(kinds or ("--net",)), "--"]

    def ip(self, *lines):
        _run([*self.inside(), "ip", "-batch", "-"], "\n".join(lines) + "\n")

    def tc(self, *lines):
        _run([*self.inside(), "tc", "-batch", "-"], "\n".join(lines) + "\n")

    def processes(self):
        """Returns the ids of all processes inside except the holder."""
        mine = os.readlink(f"/proc/{self.pid}/ns/net")
        found = []
        for name in os.listdir("/proc"):
            try:
                if name.isdigit() and int(name) != self.pid and os.readlink(f"/proc/{name}/ns/net") == mine:
                    found.append(int(name))
            except OSError:
                pass  # it has ended meanwhile
        return found

    def close(self):
        if self.holder.poll() is None:
            for process in self.processes():
                os.kill(process, signal.SIGKILL)
        self.holder.kill()
        self.holder.wait()
        self.holder.stdin.close()
        self.holder.stdout.close()


def _settings():
    return " && ".join(f"echo {value} > /proc/sys/{key}" for key, value in SETTINGS.items())


class Host:
    """One host. Faults of its link take effect at once, also for frames on their way."""

    def __init__(self, switch, index, hosts_file):
        self.name, self.address = f"h{index}", f"{SUBNET}.{index + 1}"
        self._switch, self._port = switch, f"p{index}"
        # /sys shows the network in which it was mounted, so it is mounted again.
        setup = (
            f"mount -t sysfs sysfs /sys && mount -t tmpfs tmpfs /dev/shm && mount --bind {hosts_file} /etc/hosts"
            f" && echo {self.name} > /proc/sys/kernel/hostname && ip link set lo up && {_settings()}"
        )
        self._own = _Namespaces(("--net", "--uts", "--ipc", "--mount"), setup)
        try:
            switch.ip(
                f"link add {self._port} type veth peer name eth0 netns {self._own.pid}",
                f"link set {self._port} master switch up",
            )
            self._own.ip("link set eth0 up", f"addr add {self.address}/24 dev eth0")
            switch.tc(f"qdisc add dev {self._port} clsact")
        except NoHosts:
            self.close()
            raise

    def inside(self):
        """Returns words to put before a command. They exec the command, so the process id is that of the command."""
        return self._own.inside("--net", "--uts", "--ipc", "--mount")

    def start(self, command, **options):
        return subprocess.Popen([*self.inside(), *map(str, command)], **options)

    def connect(self, port, timeout, address="127.0.0.1"):
        """Returns a TCP connection made from this host."""
        return _in_network_of(self._own.pid, lambda: socket.create_connection((address, port), timeout))

    def listen(self, port):
        """Returns a socket that listens in this host."""
        return _in_network_of(self._own.pid, lambda: socket.create_server(("", port)))

    def rate(self, rate):
        """Limits each direction to a rate as tc writes it ("10mbit"); "none": no limit."""
        self._limit(self._own, "eth0", rate)
        self._limit(self._switch, self._port, rate)

    @staticmethod
    def _limit(where, device, rate):
        if rate == "none":
            where.tc(f"qdisc replace dev {device} root pfifo limit 1000")
            return
        # A full bucket leaves at once, so it is small: messages that fit into it would take no time. With less than about
        # 160 us of the rate the link does not reach that rate, since the timer that fills the bucket is late.
        burst = max(int(bits_per_second(rate) / 8 * 160e-6), 6000)
        where.ip(f"link set {device} gso_max_size {min(burst * 4 // 5, 65536)}")
        where.tc(f"qdisc replace dev {device} root tbf rate {rate} burst {burst} latency 50ms")

    def unplug(self):
        """Pulls the cable: the host sees that its link has no carrier."""
        self._switch.ip(f"link set {self._port} down")

    def plug(self):
        self._switch.ip(f"link set {self._port} up")

    def link_down(self):
        """Puts the host's own interface down."""
        self._own.ip("link set eth0 down")

    def link_up(self):
        self._own.ip("link set eth0 up")

    def blackhole(self, direction="both"):
        """Drops frames `to` the host, `from` it or in `both` directions, while the link still looks up."""
        self._drop(10000, direction)

    def cut(self, other):
        """Sends nothing to another host any more, while all others are reached."""
        self._own.ip(f"route add blackhole {other.address}/32")

    def mend(self, other):
        self._own.ip(f"route del blackhole {other.address}/32")

    def loss(self, percent, direction="both"):
        self._drop(round(percent * 100), direction)

    def heal(self):
        """Ends blackhole and loss."""
        for side in DIRECTIONS["both"]:
            self._switch.tc(f"filter del dev {self._port} {side}")

    def _drop(self, of_10000, direction):
        """Drops `of_10000` of 10,000 frames, by a filter that matches at random.

        It is classic BPF with five instructions: random number, modulo, compare, and two returns."""
        self.heal()
        program = f"5,32 0 0 4294963256,148 0 0 10000,53 1 0 {of_10000},6 0 0 4294967295,6 0 0 0"
        for side in DIRECTIONS[direction]:
            self._switch.tc(
                f"filter add dev {self._port} {side} bpf bytecode '{program}' action mirred egress redirect dev hole"
            )

    def close(self):
        self._own.close()


def _in_network_of(pid, make):
    """Calls make() in a thread that enters the network of process `pid`. A socket stays in the network in which it was made."""
    made = []

    def visit():
        with open(f"/proc/{pid}/ns/net", "rb") as network:
            if _libc.setns(network.fileno(), CLONE_NEWNET):
                made.append(OSError(ctypes.get_errno(), "setns"))
                return
        try:
            made.append(make())
        except OSError as error:
            made.append(error)

    thread = threading.Thread(target=visit)
    thread.start()
    thread.join()
    if isinstance(made[0], OSError):
        raise made[0]
    return made[0]


def bits_per_second(rate):
    match = re.fullmatch(r"([\d.]+)([kmg])bit", rate.lower())
    if not match:
        raise ValueError(f"a rate is like 10mbit or 1gbit, not {rate}")
    return float(match.group(1)) * UNITS[match.group(2)]


class Hosts:
    """N hosts and their switch, for the length of a `with`. Processes that still run inside are killed at its end. Errors: NoHosts."""

    def __init__(self, count, rate="none"):
        self._count, self._rate = count, rate
        self._switch, self._hosts, self._hosts_file = None, [], None

    def __enter__(self):
        names = [f"{SUBNET}.{i + 1} h{i}\n" for i in range(self._count)]
        with tempfile.NamedTemporaryFile("w", prefix="hocket_hosts_", delete=False) as file:
            file.write("127.0.0.1 localhost\n" + "".join(names))
        os.chmod(file.name, 0o644)
        self._hosts_file = file.name
        try:
            self._switch = _Namespaces(("--net",), _settings())
            self._switch.ip(
                "link add switch type bridge stp_state 0 forward_delay 0",
                "link set switch up",
                "link add hole type veth peer name bottom",  # where dropped frames go
                "link set hole up",
                "link set bottom up",
            )
            for i in range(self._count):
                self._hosts.append(Host(self._switch, i, self._hosts_file))
                self._hosts[-1].rate(self._rate)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for part in [*self._hosts, *([self._switch] if self._switch else [])]:
            part.close()
        os.unlink(self._hosts_file)

    def __getitem__(self, index):
        return self._hosts[index]

    def __len__(self):
        return self._count


def main(arguments):
    if len(arguments) < 3 or not arguments[0].isdigit():
        sys.exit(__doc__)
    if why_not():
        sys.exit(f"no hosts here: {why_not()}")
    count = int(arguments[0])
    with Hosts(count, arguments[1]) as hosts:
        said = {"WORLD_SIZE": str(count), "MASTER_ADDR": "h0", "MASTER_PORT": "5000"}
        running = [host.start(arguments[2:], env=dict(os.environ, RANK=str(i), **said)) for i, host in enumerate(hosts)]
        return max(process.wait() for process in running)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

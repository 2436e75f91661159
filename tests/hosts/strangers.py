#!/usr/bin/env python3
"""Ranks that may not join, ranks that never come, and strangers, who can do nothing on a rank's ports.

    tests/hosts/strangers.py [--only WORD]
"""

import secrets
import socket
import subprocess
import sys
import tempfile

import harness
from cluster import BINARY, MODEL, ROOT, Cluster, answers_of_one_rank
from ports import free_port

LOST_RANK_STATUS = 5
WAIT_S = 3  # --rank-wait
PATIENCE_S = WAIT_S + 7
OTHER_MODEL = ROOT / "tests/golden/qwen3_moe"


def ends_with(process, status, *words):
    got = process.exit_status(PATIENCE_S)
    log = process.log()
    assert got == status, f"status {got}, wanted {status}: {log}"
    missing = [word for word in words if word not in log]
    assert not missing, f"does not say {missing}: {log}"
    return next(line for line in reversed(log.splitlines()) if words[0] in line).split(" E ")[-1].strip()


def refused(flags, *words):
    """A rank 1 with other settings is refused with a reason. Then the right rank 1 joins rank 0, which went on."""
    with Cluster(2, start=False) as ranks:
        ranks.processes[0].start()
        other = ranks.process(1, {"--rank-wait": WAIT_S} | flags, name="other")
        ranks.processes.append(other)
        other.start()
        line = ends_with(other, LOST_RANK_STATUS, *words)
        ranks.wait_listening(0)  # rank 0 may still load its model
        assert ranks.readiness(0)[0] == 503 and "rank 1" in ranks.readiness(0)[1], ranks.readiness(0)
        ranks.processes[1].start()
        ranks.wait_ready()
        assert ranks.answers(0) == answers_of_one_rank()
        return line


def wrong_token():
    with tempfile.NamedTemporaryFile("w") as other:
        other.write(secrets.token_hex(16) + "\n")
        other.flush()
        return refused({"--cluster-token-file": other.name}, "token")


def no_answer():
    """A socket listens in place of rank 0, accepts connections, and sends nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent, Cluster(2, start=False) as ranks:
        ranks.address = f"127.0.0.1:{silent.getsockname()[1]}"
        return lonely(ranks)


def nobody_there():
    with Cluster(2, start=False) as ranks:
        return lonely(ranks)


def lonely(ranks):
    ranks.processes[1] = ranks.process(1, {"--rank-wait": WAIT_S})
    ranks.processes[1].start()
    return ends_with(ranks.processes[1], LOST_RANK_STATUS, "rank 0")


def rank_0_stays_away():
    """Rank 0 is killed: the others report it, wait, and end."""
    with Cluster(2, flags={"--rank-wait": WAIT_S}) as ranks:
        ranks.processes[0].kill()
        ranks.wait_lost("rank 0", [1], 4)
        return ends_with(ranks.processes[1], LOST_RANK_STATUS, "rank 0")


def second_of_a_rank():
    """A second process that claims to be rank 1 ends, and the first is not disturbed."""
    with Cluster(2) as ranks:
        ranks.wait_doors()
        epoch = ranks.metric(0, "cluster_epoch")
        second = ranks.process(1, {"--rank-wait": WAIT_S, "--port": free_port()}, name="second")
        ranks.processes.append(second)
        second.start()
        line = ends_with(second, LOST_RANK_STATUS, "rank 1")
        unmoved(ranks, epoch)
        return line


def unmoved(ranks, epoch):
    for rank in range(ranks.num_ranks):
        assert ranks.readiness(rank)[0] == 200, ranks.readiness(rank)
        now = ranks.metric(rank, "cluster_epoch")
        assert now == epoch, f"the ranks began anew: epoch {now}, not {epoch}"
        assert ranks.answers(rank) == answers_of_one_rank()


def noise():
    """Yields bytes of strangers: nothing, random bytes, HTTP requests, a head without end, half a frame."""
    yield b""
    yield secrets.token_bytes(4096)
    yield b"\0" * 65536
    yield b"\xff" * 65536
    yield b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
    yield b"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Length: 18\r\n\r\n" + b'{"text": "a tale"}'
    yield b"A" * (1 << 20)


def garbage():
    """Sends noise to every port of every rank except clients' ports, while they answer; some connections stay open."""
    with Cluster(2) as ranks:
        ranks.wait_doors()
        epoch, kept = ranks.metric(0, "cluster_epoch"), []
        everywhere = set().union(*(process.listens_at() for process in ranks.processes))
        inside = {address for address in everywhere if address[1] not in ranks.http_ports()}
        assert ("127.0.0.1", ranks.cluster_port) in inside, inside
        streams = [ranks.stream(rank, "there was a", 1000) for rank in (0, 1)]
        for address in sorted(inside):
            for text in noise():
                kept.append(pour(address, text))
        for stream in streams:
            assert stream.finish(30).done, stream.tells()
        unmoved(ranks, epoch)
        for connection in kept:
            connection.close()
        unmoved(ranks, epoch)
        return f"{len(kept)} connections to {len(inside)} ports"


def pour(address, text):
    """Sends as much of `text` as the other side takes, and checks that the reply is no answer of the model."""
    connection = socket.create_connection(address, 2)
    connection.settimeout(0.2)
    try:
        connection.sendall(text)
        said = connection.recv(65536)
        assert b"output_ids" not in said and b" 200 " not in said[:20], said
    except OSError:
        pass  # the other side closed the connection, or sent nothing
    return connection


def no_token():
    """Ranks on several hosts need a token, or --insecure-cluster."""
    command = [BINARY, "serve", "--model-path", MODEL, "--nnodes", "2", "--node-rank", "1", "--dist-init-addr", "10.0.0.1:5000"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert done.returncode == LOST_RANK_STATUS, done
    for word in ("--cluster-token-file", "--insecure-cluster"):
        assert word in done.stderr, done.stderr
    return next(line for line in done.stderr.splitlines() if line.startswith("error"))


CASES = (
    ("join: a wrong token", wrong_token),
    ("join: one side without TLS", lambda: refused({"--cluster-tls": "off"}, "with TLS, this rank without", "--cluster-tls")),
    ("join: another arithmetic", lambda: refused({"--dtype": "float32"}, "bfloat16", "float32")),
    ("join: another model", lambda: refused({"--model-path": OTHER_MODEL}, "model")),
    ("join: rank 0 never answers", no_answer),
    ("join: rank 0 is not there", nobody_there),
    ("join: rank 0 stays away", rank_0_stays_away),
    ("join: a second process of the same rank", second_of_a_rank),
    ("join: no token across hosts", no_token),
    ("strangers: garbage on every port", garbage),
)

if __name__ == "__main__":
    sys.exit(not harness.run(CASES, harness.arguments(__doc__)))

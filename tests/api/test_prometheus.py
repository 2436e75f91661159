"""deploy/monitoring in a real Prometheus: its configuration, the metrics of a server under load, and every query of the board and the
alerts. Skipped if prometheus and promtool are not installed (apt-get install prometheus)."""

import json
import math
import re
import shutil
import subprocess
import threading
import time
import urllib.parse
import urllib.request

import pytest
from conftest import MODEL, ROOT, free_port

FOLDER = ROOT / "deploy" / "monitoring"
pytestmark = pytest.mark.skipif(not (shutil.which("prometheus") and shutil.which("promtool")), reason="prometheus is not installed")

# Names are spelled as SGLang and vLLM do, with a colon and "gb", since boards query them.
ON_PURPOSE = re.compile(r"metric names should not contain (':'|abbreviated units)$")
# Only a service of several processes has this metric.
OF_SEVERAL_PROCESSES = "hocket:cluster_rank_up"


def promtool(*words, **options):
    return subprocess.run(["promtool", *map(str, words)], capture_output=True, text=True, timeout=60, **options)


class Prometheus:
    """Runs a Prometheus that scrapes `server` each second; the rest of its configuration is that of deploy/monitoring."""

    def __init__(self, folder, server):
        config = (FOLDER / "prometheus.yaml").read_text()
        for ours, here in (("hocket:30000", f"127.0.0.1:{server.port}"), ("scrape_interval: 5s", "scrape_interval: 1s")):
            assert config.count(ours) == 1
            config = config.replace(ours, here)
        (folder / "prometheus.yaml").write_text(config)
        shutil.copy(FOLDER / "alerts.yaml", folder)
        self.url = f"http://127.0.0.1:{free_port()}"
        self.log_path = folder / "log.txt"
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(
                ["prometheus", f"--config.file={folder}/prometheus.yaml", f"--storage.tsdb.path={folder}/data",
                 f"--web.listen-address={self.url.removeprefix('http://')}"],
                stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def get(self, path, **query):
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(query)}", timeout=20) as answer:
            return json.load(answer)["data"]

    def values(self, expression):
        """Returns the present value of each series of the expression."""
        return [float(series["value"][1]) for series in self.get("query", query=expression)["result"]]

    def wait_scrapes(self, number, patience_s=60):
        deadline = time.monotonic() + patience_s
        while True:
            try:
                (count,) = self.values('count_over_time(up{job="hocket"}[1h])') or [0]
                if count >= number:
                    return
            except OSError:
                pass
            assert self.process.poll() is None and time.monotonic() < deadline, self.log_path.read_text()
            time.sleep(0.2)


@pytest.fixture
def scraped(start, tmp_path):
    """A server with two ranks that records experts and answers all the time, and a Prometheus that has scraped it for a while."""
    server = start("--ep-size", "2", "--overlap-schedule", "off")
    assert server.call("/start_expert_distribution_record", b"{}")[0] == 200
    over = threading.Event()

    def load():
        body = {"messages": [{"role": "user", "content": "Tell me of a fox. " * 8}], "max_tokens": 24, "response_format": {"type": "json_object"}}
        while not over.is_set():
            server.call("/v1/chat/completions", json.dumps(body).encode())

    clients = [threading.Thread(target=load) for _ in range(2)]
    for client in clients:
        client.start()
    folder = tmp_path / "prometheus"
    folder.mkdir()
    prometheus = Prometheus(folder, server)
    try:
        prometheus.wait_scrapes(5)
        yield server, prometheus
    finally:
        prometheus.process.terminate()
        over.set()
        for client in clients:
            client.join()
        prometheus.process.wait(20)


def board_queries():
    """Yields (title, expression) as Grafana sends them for all jobs and instances."""
    board = json.loads((FOLDER / "grafana" / "hocket.json").read_text())
    for panel in board["panels"]:
        for target in panel.get("targets", []):
            expression = target["expr"]
            for variable, value in (("$__rate_interval", "4s"), ("$job", ".*"), ("$instance", ".*")):
                expression = expression.replace(variable, value)
            assert "$" not in expression, expression
            yield panel["title"], expression


def test_the_configuration_is_one():
    checked = promtool("check", "config", FOLDER / "prometheus.yaml")
    assert checked.returncode == 0, checked.stderr
    rules = len(re.findall(r"- alert:", (FOLDER / "alerts.yaml").read_text()))
    assert f"SUCCESS: {rules} rules found" in checked.stdout, checked.stdout


def test_metrics_are_as_prometheus_wants_them(server):
    text = server.get("/metrics")[2].decode()
    assert text.count("# TYPE") > 50
    checked = promtool("check", "metrics", input=text)
    others = [line for line in checked.stderr.splitlines() + checked.stdout.splitlines() if not ON_PURPOSE.search(line)]
    assert not others


def test_every_query_of_the_board_has_an_answer(scraped):
    _, prometheus = scraped
    (up,) = prometheus.values('up{job="hocket"}')
    assert up == 1
    silent = []
    for title, expression in board_queries():
        values = prometheus.values(expression)
        if OF_SEVERAL_PROCESSES in expression:
            assert not values
        elif not any(math.isfinite(value) for value in values):
            silent.append((title, expression, values))
    assert not silent
    # Grafana fills the board's variables with this query.
    assert prometheus.get("label/job/values", **{"match[]": "hocket:num_running_reqs"}) == ["hocket"]


def test_alerts_are_evaluated_and_quiet(scraped):
    _, prometheus = scraped
    (group,) = prometheus.get("rules")["groups"]
    assert group["name"] == "hocket" and len(group["rules"]) > 5
    for rule in group["rules"]:
        assert rule["health"] in ("ok", "unknown"), rule  # unknown: not evaluated yet
        assert not prometheus.values(rule["query"]), rule


def test_the_model_of_the_compose_file_is_there():
    compose = (FOLDER / "compose.yaml").read_text()
    assert f"/models/${{MODEL:-{MODEL.name}}}" in compose
    assert "hocket:30000" in (FOLDER / "prometheus.yaml").read_text() and '"--port", "30000"' in compose

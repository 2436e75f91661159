"""Checks deploy/ and docs/deploy.md against the programs that read them: Kubernetes (its schemas, in the package
kubernetes-validate), kubectl, systemd and bash if they are installed, and hocket's own flags."""

import copy
import os
import re
import shutil
import subprocess
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "deploy/kubernetes"
PAGE = ROOT / "docs/deploy.md"
SBATCH = ROOT / "deploy/slurm/hocket.sbatch"
UNIT = ROOT / "deploy/systemd/hocket@.service"
SINGLE = ROOT / "deploy/systemd/hocket.service"
VERSIONS = ("1.28", kubernetes_validate.latest_version())  # the oldest that is supported, the newest that the package knows
LABEL = {"app.kubernetes.io/name": "hocket"}


def read(path):
    return [document for document in yaml.safe_load_all(path.read_text(encoding="utf-8")) if document]


def check(document):
    for version in VERSIONS:
        kubernetes_validate.validate(document, version, strict=True)


def run(*command):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
    return done.returncode, done.stdout


def needs(program):
    return pytest.mark.skipif(not shutil.which(program), reason=f"{program} is not installed")


KUSTOMIZATION = read(FOLDER / "kustomization.yaml")[0]
MANIFESTS = {f"{d['kind']}/{d['metadata']['name']}": d for name in KUSTOMIZATION["resources"] for d in read(FOLDER / name)}


@pytest.fixture
def ranks():
    return copy.deepcopy(MANIFESTS["StatefulSet/hocket"])


@pytest.fixture
def pod(ranks):
    return ranks["spec"]["template"]["spec"]


@pytest.fixture
def hocket(pod):
    return pod["containers"][0]


def setting(container, name):
    """Returns the value of --name among a container's arguments."""
    (value,) = [a.split("=", 1)[1] for a in container["args"] if a.startswith(f"--{name}=")]
    return value


@pytest.mark.parametrize("name", MANIFESTS)
def test_manifest_fits_the_schema(name):
    check(MANIFESTS[name])


@needs("kubectl")
def test_what_kustomize_makes_of_them_fits_too():
    status, output = run("kubectl", "kustomize", FOLDER)
    assert status == 0, output
    made = list(yaml.safe_load_all(output))
    assert len(made) == len(MANIFESTS)
    for document in made:
        check(document)
    (ranks,) = [d for d in made if d["kind"] == "StatefulSet"]
    (image,) = KUSTOMIZATION["images"]
    assert ranks["spec"]["template"]["spec"]["containers"][0]["image"] == f"{image['newName']}:{image['newTag']}"


def test_no_manifest_is_left_out():
    assert sorted(KUSTOMIZATION["resources"]) == sorted(p.name for p in FOLDER.glob("*.yaml") if p.name != "kustomization.yaml")


def test_with_etcd_all_servers_are_named_and_only_ranks_reach_them():
    folder = ROOT / "deploy/kubernetes-etcd"
    (kustomization,) = read(folder / "kustomization.yaml")
    assert kustomization["resources"] == ["../kubernetes", "etcd.yaml"]
    made = {d["kind"]: d for d in read(folder / "etcd.yaml")}
    for document in made.values():
        check(document)
    servers, service = made["StatefulSet"], made["Service"]["spec"]
    names = [f"{servers['metadata']['name']}-{i}" for i in range(servers["spec"]["replicas"])]
    assert servers["spec"]["serviceName"] == made["Service"]["metadata"]["name"] and service["publishNotReadyAddresses"] is True
    domain, command = servers["spec"]["serviceName"], containers(servers)["command"]
    assert f"--initial-cluster={','.join(f'{name}=http://{name}.{domain}:2380' for name in names)}" in command
    (patch,) = kustomization["patches"]
    *changes, store = yaml.safe_load(patch["patch"])
    assert store["value"] == f"--cluster-store=etcd://{','.join(f'{name}.{domain}:2379' for name in names)}"
    values = {change["path"].removeprefix("/spec/template/spec/containers/0"): change["value"] for change in changes}
    num_ranks = values["/spec/replicas"]
    (at,) = [i for i, a in enumerate(containers(MANIFESTS["StatefulSet/hocket"])["args"]) if a.startswith("--nnodes=")]
    assert values[f"/args/{at}"] == f"--nnodes={num_ranks}"
    assert 0 < 2 * int(values["/args/-"].removeprefix("--tolerate-ranks=")) < num_ranks
    allowed = [source["podSelector"]["matchLabels"] for source in made["NetworkPolicy"]["spec"]["ingress"][0]["from"]]
    assert allowed == [servers["spec"]["selector"]["matchLabels"], LABEL]


def containers(document):
    return document["spec"]["template"]["spec"]["containers"][0]


@pytest.mark.parametrize(
    "name, where, right, wrong",
    [
        ("Service/hocket-ranks", lambda d: d["spec"], "publishNotReadyAddresses", "publishNotReadyAddress"),
        ("StatefulSet/hocket", lambda d: d["spec"], "serviceName", "servicename"),
        ("StatefulSet/hocket", lambda d: d["spec"]["template"]["spec"], "securityContext", "securitycontext"),
        ("StatefulSet/hocket", containers, "livenessProbe", "livenessprobe"),
        ("StatefulSet/hocket", lambda d: containers(d)["readinessProbe"]["httpGet"], "path", "pth"),
        ("PodDisruptionBudget/hocket", lambda d: d["spec"], "maxUnavailable", "maxUnavailble"),
        ("NetworkPolicy/hocket", lambda d: d["spec"]["ingress"][0]["from"][0], "podSelector", "podselector"),
    ],
)
def test_a_misspelled_field_is_refused(name, where, right, wrong):
    document = copy.deepcopy(MANIFESTS[name])
    place = where(document)
    place[wrong] = place.pop(right)
    with pytest.raises(kubernetes_validate.ValidationError, match=f"'{wrong}' was unexpected|'{right}' is a required"):
        check(document)


def test_a_value_of_another_type_is_refused(ranks):
    ranks["spec"]["replicas"] = "two"
    with pytest.raises(kubernetes_validate.ValidationError, match="'two' is not"):
        check(ranks)


def test_ranks_find_each_other(ranks, hocket):
    service = MANIFESTS[f"Service/{ranks['spec']['serviceName']}"]["spec"]
    assert {"name": "HOCKET_SERVICE", "value": ranks["spec"]["serviceName"]} in hocket["env"]
    assert int(setting(hocket, "nnodes")) == ranks["spec"]["replicas"]
    assert service["clusterIP"] == "None" and service["publishNotReadyAddresses"] is True
    assert {"cluster": 5000, "http": 30000} == {p["name"]: p["containerPort"] for p in hocket["ports"]}
    assert {"cluster": 5000, "http": 30000} == {p["name"]: p["port"] for p in service["ports"]}
    assert ranks["spec"]["podManagementPolicy"] == "Parallel"


def test_all_speak_of_the_same_pods(ranks, pod):
    assert ranks["spec"]["template"]["metadata"]["labels"] == LABEL
    (apart,) = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    policy = MANIFESTS["NetworkPolicy/hocket"]["spec"]
    selectors = [MANIFESTS[name]["spec"]["selector"] for name in ("Service/hocket", "Service/hocket-ranks")]
    selectors += [ranks["spec"]["selector"]["matchLabels"], apart["labelSelector"]["matchLabels"]]
    selectors += [MANIFESTS["PodDisruptionBudget/hocket"]["spec"]["selector"]["matchLabels"]]
    selectors += [policy["podSelector"]["matchLabels"], policy["ingress"][0]["from"][0]["podSelector"]["matchLabels"]]
    assert all(selector == LABEL for selector in selectors)


def test_strangers_reach_the_api_only():
    ranks, strangers = MANIFESTS["NetworkPolicy/hocket"]["spec"]["ingress"]
    assert "ports" not in ranks and strangers == {"ports": [{"port": "http"}]}


def test_no_variable_of_a_service_becomes_a_setting(pod):
    assert pod["enableServiceLinks"] is False  # HOCKET_PORT=tcp://... would be --port


def test_a_lost_rank_restarts_no_other(hocket):
    paths = {name: hocket[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness", "readiness")}
    assert paths == {"startup": "/livez", "liveness": "/livez", "readiness": "/readyz"}


def test_there_is_time_to_drain(pod, hocket):
    before = int(hocket["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod["terminationGracePeriodSeconds"] > before + 2 * float(setting(hocket, "shutdown-timeout"))


def test_cores_can_be_the_pods_own(hocket):
    assert hocket["resources"]["requests"] == hocket["resources"]["limits"]
    assert int(hocket["resources"]["limits"]["cpu"]) >= 1


def test_the_token_is_a_file_of_root_and_the_group(pod, hocket):
    (volume,) = [v["secret"] for v in pod["volumes"] if "secret" in v]
    (mount,) = [m for m in hocket["volumeMounts"] if m["name"] == "token"]
    assert volume["defaultMode"] == 0o400
    assert setting(hocket, "cluster-token-file") == f"{mount['mountPath']}/{volume['items'][0]['path']}"
    assert pod["securityContext"]["fsGroup"] == pod["securityContext"]["runAsGroup"]


def test_every_flag_and_variable_is_one_of_the_server(hocket):
    status, output = run(os.environ["HOCKET_BIN"], "serve", "--help")
    assert status == 0, output
    known = set(re.findall(r"--([a-z][a-z0-9-]*)", output))
    variables = {"HOCKET_" + flag.upper().replace("-", "_") for flag in known} | {"HOCKET_SERVICE", "HOCKET_ISA"}
    wanted = {a.removeprefix("--").split("=")[0] for a in hocket["args"] if a.startswith("--")}
    texts = [path.read_text(encoding="utf-8") for path in (PAGE, SBATCH, UNIT, SINGLE)]
    for text in texts:
        for command in re.findall(r"hocket[\"']? serve((?:[^\n\\]|\\\n)*)", text):
            wanted.update(re.findall(r"(?<=\s)--([a-z][a-z0-9-]*)", command))
        named = set(re.findall(r"\bHOCKET_[A-Z_]+\b", text))
        assert named <= variables, named - variables
    wanted.update(re.findall(r"`--([a-z][a-z0-9-]*)", texts[0]))
    assert {"nnodes", "node-rank", "dist-init-addr", "cluster-token-file"} <= wanted
    assert wanted <= known, wanted - known


@needs("systemd-analyze")
@pytest.mark.parametrize("unit", [UNIT, SINGLE], ids=lambda unit: unit.name)
def test_systemd_reads_the_unit(unit, tmp_path):
    copied = tmp_path / unit.name
    program = re.search(r"ExecStart=(\S+)", unit.read_text(encoding="utf-8")).group(1)
    copied.write_text(unit.read_text(encoding="utf-8").replace(program, "/bin/true"), encoding="utf-8")
    status, output = run("systemd-analyze", "verify", "--man=no", copied)
    assert status == 0 and not output, output
    copied.write_text(copied.read_text(encoding="utf-8").replace("Restart=", "Restrat="), encoding="utf-8")
    assert "Restrat" in run("systemd-analyze", "verify", "--man=no", copied)[1]


@needs("promtool")
@pytest.mark.parametrize("what, name", [("config", "prometheus.yaml"), ("rules", "alerts.yaml")])
def test_prometheus_reads_its_files(what, name, tmp_path):
    monitoring = ROOT / "deploy/monitoring"
    status, output = run("promtool", "check", what, monitoring / name)
    assert status == 0, output
    text = (monitoring / name).read_text(encoding="utf-8")
    (tmp_path / name).write_text(text.replace("scrape_configs", "scrape_config").replace("expr:", "exp:"), encoding="utf-8")
    assert run("promtool", "check", what, tmp_path / name)[0] != 0


FAKE = {
    "scontrol": "#!/bin/sh\necho h0\necho h1\n",
    # Runs srun's command without srun's flags, once for all tasks.
    "srun": '#!/bin/bash\nwhile [[ $1 == --* ]]; do shift; done\nexec "$@"\n',
    # Each start takes a line of $PLAN: its exit status, or `stopped`, which also signals the script, as the end of a job does.
    "hocket": '''#!/bin/bash
echo "$*" >>"$LOG"
status=$(head -1 "$PLAN")
sed -i 1d "$PLAN"
[[ $status == stopped ]] && kill -TERM $PPID && exit 1
exit "$status"
''',
}


@needs("openssl")
@pytest.mark.parametrize("plan, starts, status", [([5, 137, 0], 3, 0), ([2], 1, 2), ([5, 3], 2, 3), ([5, "stopped"], 2, 1)])
def test_the_job_starts_a_lost_rank_again(tmp_path, plan, starts, status):
    for name, text in FAKE.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "sleep").symlink_to("/bin/true")
    (tmp_path / "plan").write_text("".join(f"{number}\n" for number in plan))
    environment = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "LOG": str(tmp_path / "log"),
        "PLAN": str(tmp_path / "plan"),
        "SLURM_JOB_NODELIST": "h[0-1]",
        "SLURM_CPUS_ON_NODE": "2",
    }
    done = subprocess.run(["bash", SBATCH, "--model-path", "a b"], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == status, done.stdout + done.stderr
    token = tmp_path / ".hocket-token"
    assert token.stat().st_mode & 0o777 == 0o600 and len(token.read_text().strip()) == 64
    assert "http://h0:30000" in done.stdout
    log = (tmp_path / "log").read_text().splitlines()
    assert log == [f"serve --host 0.0.0.0 --cluster-token-file {token} --shutdown-timeout 60 --model-path a b"] * starts


def test_both_images_have_the_same_libraries():
    dockerfile = (ROOT / "deploy/Dockerfile").read_text(encoding="utf-8")
    script = (ROOT / "deploy/image.sh").read_text(encoding="utf-8")
    installed = re.search(r"--no-install-recommends \\\n((?:      .*\n)+) && rm", dockerfile).group(1).replace("\\", " ").split()
    runtime, also = (re.search(rf"^{name}='([^']*)'$", script, re.M).group(1).split() for name in ("runtime", "also"))
    assert set(installed) == set(runtime + also) - {"base-files"}

"""Deployment files that people already have: what is understood, and what stays unknown."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prefixaudit.core.audit import ServerFacts, TierFacts
from prefixaudit.core.unknown import UNKNOWN
from prefixaudit.deployment import Deployment, load_deployment
from prefixaudit.deployment.reading import read_deployments, written_toml
from prefixaudit.errors import ConfigurationError, UsageError

SAMPLES = Path(__file__).parents[3] / "samples" / "deployments"


def read(tmp_path: Path, **files: str) -> Deployment:
    """Read files whose names are given with `__` for the dot."""
    paths = []
    for name, text in files.items():
        path = tmp_path / name.replace("__", ".")
        path.write_text(text)
        paths.append(path)
    return read_deployments(paths)


def only_server(deployment: Deployment) -> ServerFacts:
    assert len(deployment.servers) == 1
    return deployment.servers[0]


def shown(deployment: Deployment) -> tuple[list[ServerFacts], list[TierFacts], object]:
    """Everything but where it stands."""
    return (
        [replace(server, location=None) for server in deployment.servers],
        [replace(tier, location=None) for tier in deployment.tiers],
        (deployment.engine, deployment.identity, deployment.adapters, deployment.block_size),
    )


def test_command_line_over_several_lines(tmp_path: Path) -> None:
    server = only_server(
        read(
            tmp_path,
            serve__sh="""
            pip install vllm==0.10.2
            export PYTHONHASHSEED=0
            vllm serve org/model --dtype=half -tp 2 \\
              --max_model_len 32k --enable-lora \\
              --lora-modules sql=/a/sql chat=/a/chat --no-enable-prefix-caching
            """,
        )
    )

    assert server.engine is not None
    assert (server.engine.name, server.engine.version) == ("vllm", "0.10.2")
    assert (server.identity.model, server.identity.dtype) == ("org/model", "float16")
    assert server.max_model_len == 32_000
    wanted = {
        "python_hash_seed": "0",
        "tensor_parallel_size": 2,
        "enable_lora": True,
        "lora_modules": ("sql=/a/sql", "chat=/a/chat"),
        "enable_prefix_caching": False,
        "enable_prompt_embeds": False,
        "prefix_caching_hash_algo": None,
    }
    assert {name: server.settings[name] for name in wanted} == wanted


def test_variable_of_the_shell_leaves_a_value_unknown_and_says_so(tmp_path: Path) -> None:
    deployment = read(tmp_path, serve__sh="vllm serve m --max-model-len $LENGTH\n")

    assert "max_model_len" not in only_server(deployment).settings
    assert any("$LENGTH" in note for note in deployment.not_understood)


def test_unknown_further_options_leave_absent_ones_unknown(tmp_path: Path) -> None:
    complete = only_server(read(tmp_path, a__sh="vllm serve m\n"))
    open_ended = only_server(read(tmp_path, a__sh="vllm serve m $EXTRA\n"))

    assert complete.settings["enable_lora"] is False
    assert "enable_lora" not in open_ended.settings


def test_environment_of_a_script_is_not_known_and_of_a_container_is(tmp_path: Path) -> None:
    script = only_server(read(tmp_path, a__sh="vllm serve m\n"))
    compose = only_server(
        read(
            tmp_path,
            c__yaml="services: {v: {image: 'vllm/vllm-openai:v0.11.2', command: '--model m'}}\n",
        )
    )

    assert "python_hash_seed" not in script.settings
    assert compose.settings["python_hash_seed"] is None
    assert compose.settings["enable_prefix_caching"] is True


def test_image_of_ones_own_may_set_variables(tmp_path: Path) -> None:
    deployment = read(
        tmp_path,
        c__yaml="services: {v: {image: 'registry/own:3', command: 'vllm serve m'}}\n",
    )

    assert "python_hash_seed" not in only_server(deployment).settings
    assert only_server(deployment).engine is not None
    assert any("version of vllm" in note for note in deployment.not_understood)


def test_tag_from_a_variable_leaves_the_image_known(tmp_path: Path) -> None:
    compose = "services: {v: {image: 'vllm/vllm-openai:${TAG}', command: '--model m'}}\n"
    script = "docker run vllm/vllm-openai:$TAG --model m\n"

    for name, text in (("c__yaml", compose), ("s__sh", script)):
        deployment = read(tmp_path, **{name: text})
        assert only_server(deployment).identity.model == "m"
        assert any("version of vllm" in note for note in deployment.not_understood)


def test_image_of_ones_own_named_after_vllm_runs_it(tmp_path: Path) -> None:
    text = "services: {v: {image: 'registry/team-vllm:7', command: '--model m --enable-lora'}}\n"
    server = only_server(read(tmp_path, c__yaml=text))

    assert server.settings["enable_lora"] is True
    assert "python_hash_seed" not in server.settings


def test_container_with_a_servers_options_that_nobody_knows_is_named(tmp_path: Path) -> None:
    text = "services: {v: {image: 'registry/llm:7', command: '--model m'}, %s}\n"
    known = "w: {image: 'vllm/vllm-openai:v0.33.0', command: '--model m'}"
    deployment = read(tmp_path, c__yaml=text % known)

    assert [server.name for server in deployment.servers] == ["w"]
    assert "v: what image registry/llm:7 runs" in deployment.not_understood


def test_docker_run_gives_image_and_environment(tmp_path: Path) -> None:
    server = only_server(
        read(
            tmp_path,
            run__sh="""docker run --rm --gpus all -p 8000:8000 -e PYTHONHASHSEED=random \\
              --name chat vllm/vllm-openai:v0.24.0 --model m --kv-cache-dtype fp8\n""",
        )
    )

    assert server.engine is not None
    assert (server.name, server.engine.version) == ("chat", "0.24.0")
    assert server.settings["python_hash_seed"] is None
    assert server.identity.kv_cache_dtype == "fp8_e4m3"


MANIFEST = """
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data:
  SEED: "7"
  lmcache.yaml: |
    chunk_size: 128
    remote_url: "redis://user:hunter2@store:6379?x=hunter2"
    local_cpu: false
---
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {name: big}
spec:
  leaderWorkerTemplate:
    leaderTemplate:
      spec:
        containers:
          - name: leader
            image: lmcache/vllm-openai:v0.3.15
            args:
              - --model=m
              - --max-model-len=$(LENGTH)
              - --api-key=hunter2
              - --kv-transfer-config={"kv_connector":"LMCacheConnectorV1","kv_role":"kv_both"}
            env:
              - {name: LENGTH, value: "4096"}
              - {name: LMCACHE_CONFIG_FILE, value: /etc/lmcache.yaml}
              - name: PYTHONHASHSEED
                valueFrom: {configMapKeyRef: {name: settings, key: SEED}}
              - name: VLLM_SERVER_DEV_MODE
                valueFrom: {secretKeyRef: {name: s, key: k}}
"""


def test_manifest_with_config_map_and_references(tmp_path: Path) -> None:
    deployment = read(tmp_path, k__yaml=MANIFEST)
    server = only_server(deployment)

    assert server.name == "big"
    assert server.max_model_len == 4096
    assert server.settings["python_hash_seed"] == "7"
    assert "server_dev_mode" not in server.settings
    assert server.settings["api_key_set"] is True
    store = deployment.tiers[-1]
    assert (store.profile.name, store.profile.version, store.block_size) == (
        "lmcache",
        "0.3.15",
        128,
    )
    assert store.settings["path"] == "redis://store:6379"
    assert (store.location and store.location.line) == 8
    assert "hunter2" not in written_toml([tmp_path / "k.yaml"])


def test_server_in_a_shell_of_a_container_stands_where_the_container_does(tmp_path: Path) -> None:
    text = """apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  containers:
    - image: vllm/vllm-openai:v0.33.0
      command: [bash, -lc]
      args:
        - |
          echo start
          exec vllm serve m
"""
    server = only_server(read(tmp_path, p__yaml=text))

    assert (server.location and server.location.line) == 6


def test_command_of_a_script_stands_at_its_line(tmp_path: Path) -> None:
    server = only_server(read(tmp_path, s__sh="#!/bin/sh\n\nset -e\nvllm serve \\\n  m\n"))

    assert (server.location and server.location.line) == 4


WORKERS = """
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {name: big}
spec:
  leaderWorkerTemplate:
    size: 2
    leaderTemplate: {spec: {containers: [{image: 'lmsysorg/sglang:v0.5.9', command: &c
      [python3, -m, sglang.launch_server, --model-path, m, --nnodes=2, '--node-rank=$(RANK)']}]}}
    workerTemplate: {spec: {containers: [{image: 'lmsysorg/sglang:v0.5.9', command: *c}]}}
"""
GRAPH = """
apiVersion: nvidia.com/v1alpha1
kind: DynamoGraphDeployment
metadata: {name: graph}
spec:
  services:
    Frontend:
      extraPodSpec:
        mainContainer: {image: 'nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.6.1',
          command: [python3, -m, dynamo.frontend], args: [--router-mode, kv]}
    Worker:
      extraPodSpec:
        mainContainer: {image: 'nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.6.1',
          command: [python3, -m, dynamo.vllm], args: [--model, m]}
"""


def test_workers_are_ranks_of_their_leader(tmp_path: Path) -> None:
    assert only_server(read(tmp_path, w__yaml=WORKERS)).name == "big"


@pytest.mark.parametrize("option", ["--headless", "--node-rank 1", "--node-rank=2"])
def test_further_rank_is_no_server_of_its_own(tmp_path: Path, option: str) -> None:
    first = "vllm serve m\n" if option == "--headless" else "sglang serve m --node-rank 0\n"

    assert len(read(tmp_path, s__sh=f"{first}{first.strip()} {option}\n").servers) == 1


def test_graph_of_a_router_and_a_worker(tmp_path: Path) -> None:
    deployment = read(tmp_path, g__yaml=GRAPH)

    assert [server.name for server in deployment.servers] == ["graph-Worker"]
    router = deployment.tiers[-1]
    assert (router.tier.kind, router.profile.name, router.profile.version, router.servers) == (
        "router-index",
        "dynamo",
        "1.6.1",
        ("graph-Worker",),
    )


def test_environment_from_elsewhere_leaves_unset_variables_unknown(tmp_path: Path) -> None:
    text = """
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  containers:
    - image: vllm/vllm-openai:v0.33.0
      args: [--model, m]
      envFrom: [{secretRef: {name: s}}]
"""
    assert "python_hash_seed" not in only_server(read(tmp_path, p__yaml=text)).settings


def test_servers_of_two_files_share_a_store_by_its_address(tmp_path: Path) -> None:
    line = "MOONCAKE_MASTER={} python -m sglang.launch_server --model-path m --page-size 64 "
    line += "--enable-hierarchical-cache --hicache-storage-backend mooncake\n"
    deployment = read(
        tmp_path, a__sh=line.format("x:1"), b__sh=line.format("x:1"), c__sh=line.format("y:1")
    )

    stores = [tier.servers for tier in deployment.tiers if tier.profile.name == "mooncake"]

    assert stores == [("a", "b"), ("c",)]


def test_sglang_overrides_are_the_position_encoding(tmp_path: Path) -> None:
    override = json.dumps({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}})
    command = "python3 -m sglang.launch_server --model-path m"
    deployment = read(
        tmp_path,
        a__sh=command,
        b__sh=f"{command} --json-model-override-args {shlex.quote(override)}",
    )

    plain, other = (server.identity.position_encoding for server in deployment.servers)

    assert plain == "as in the checkpoint"
    assert str(other).startswith("override ")


def test_config_file_lies_under_the_command_line_that_names_it(tmp_path: Path) -> None:
    deployment = read(
        tmp_path,
        c__yaml="model: m\nmax-model-len: 1000\nenable_lora: true\nblock-size: 32\n",
        s__sh="vllm serve --config /etc/c.yaml --max-model-len 2000\n",
    )
    server = only_server(deployment)

    assert (server.identity.model, server.max_model_len) == ("m", 2000)
    assert server.settings["enable_lora"] is True
    assert deployment.block_size == 32


def test_config_file_alone_is_a_server_with_unknown_options(tmp_path: Path) -> None:
    server = only_server(read(tmp_path, c__yaml="model: m\nkv-cache-dtype: fp8_e5m2\n"))

    assert server.identity.kv_cache_dtype == "fp8_e5m2"
    assert "enable_lora" not in server.settings


def test_lmcache_file_belongs_to_the_server_that_names_none(tmp_path: Path) -> None:
    deployment = read(
        tmp_path,
        lm__yaml="chunk_size: 64\nlocal_disk: /mnt/kv\nmax_local_disk_size: 10\n",
        s__sh='vllm serve m --kv-transfer-config \'{"kv_connector":"LMCacheConnectorV1"}\'\n',
    )

    assert (deployment.tiers[-1].block_size, deployment.tiers[-1].settings["path"]) == (
        64,
        "/mnt/kv",
    )


def test_connectors_inside_a_multi_connector_are_found(tmp_path: Path) -> None:
    config = {
        "kv_connector": "MultiConnector",
        "kv_connector_extra_config": {
            "connectors": [
                {"kv_connector": "NixlConnector"},
                {
                    "kv_connector": "OffloadingConnector",
                    "kv_connector_extra_config": {"shared_storage_path": "/mnt/kv"},
                },
            ]
        },
    }
    deployment = read(
        tmp_path, s__sh=f"vllm serve m --kv-transfer-config {shlex.quote(json.dumps(config))}\n"
    )

    assert deployment.tiers[-1].profile.name == "vllm-file-tier"
    assert only_server(deployment).settings["kv_connectors"] == (
        "NixlConnector",
        "OffloadingConnector",
    )


def test_cache_server_gives_its_tier_version_and_chunk(tmp_path: Path) -> None:
    transfer = {
        "kv_connector": "LMCacheMPConnector",
        "kv_connector_extra_config": {"lmcache.mp.host": "tcp://cache", "lmcache.mp.port": 6555},
    }
    text = f"""
services:
  cache:
    image: lmcache/standalone:v0.5.2
    command: --host 0.0.0.0 --chunk-size 128
  vllm:
    image: vllm/vllm-openai:v0.22.0
    command: [--model, m, --kv-transfer-config, '{json.dumps(transfer)}']
"""
    store = read(tmp_path, c__yaml=text).tiers[-1]

    assert (store.tier.name, store.profile.version, store.block_size) == (
        "multiprocess",
        "0.5.2",
        128,
    )
    assert store.settings["path"] == "cache:6555"


def test_toml_has_the_last_word(tmp_path: Path) -> None:
    deployment = read(
        tmp_path,
        prefixaudit__toml="""
        [tenant]
        source = "header:x-tenant-id"
        [[server]]
        name = "s"
        version = "0.22.0"
        settings = { enable_prompt_embeds = true }
        """,
        s__sh="vllm serve m --enable-lora\n",
    )
    server = only_server(deployment)

    assert server.engine is not None
    assert server.engine.version == "0.22.0"
    assert (server.settings["enable_prompt_embeds"], server.settings["enable_lora"]) == (True, True)
    assert deployment.tenant_rule is not None


def test_nothing_is_read_twice_or_executed(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    script = f"X=$(touch {mark})\n`touch {mark}`\necho vllm serve fake\nvllm serve m\n"

    assert only_server(read(tmp_path, s__sh=script)).identity.model == "m"
    assert not mark.exists()


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("x.yaml", "a: [1\n", "starts no server"),
        ("x.yaml", "apiVersion: v1\nkind: Pod\nspec: {{ .Values.x }}\n", "not valid YAML"),
        ("x.yaml", "services: !!python/object/apply:os.system [ls]\n", "not valid YAML"),
        ("x.sh", "ls -la\n", "starts no server"),
    ],
)
def test_what_is_no_deployment_is_a_problem(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    path = tmp_path / name
    path.write_text(text)

    with pytest.raises(ConfigurationError, match=message):
        read_deployments([path])


def test_folder_stands_for_its_deployment_files(tmp_path: Path) -> None:
    (tmp_path / "serve.sh").write_text("vllm serve m\n")
    (tmp_path / "other.yaml").write_text("a: 1\n")
    (tmp_path / "notes.txt").write_text("vllm serve other\n")

    assert [server.name for server in read_deployments([tmp_path]).servers] == ["serve"]


def test_folder_without_a_deployment_file_is_a_problem(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no deployment file"):
        read_deployments([tmp_path])


def test_toml_alone_is_written_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "prefixaudit.toml"
    path.write_text(
        """
        [engine]
        name = "vllm"
        [trust_domains]
        "a b" = ["x", "y"]
        [[audit.ignore]]
        rule = "r"
        reason = "one \\"two\\" \\u00e9"
        owner = "o"
        expires = 2026-12-31
        """
    )

    again = written_and_read([path], tmp_path)
    first = load_deployment(path)

    assert shown(again) == shown(first)
    assert again.trust_domains == first.trust_domains
    assert [replace(i, line=0) for i in again.policy.ignores] == [
        replace(i, line=0) for i in first.policy.ignores
    ]


def test_two_toml_files_are_one_too_many(tmp_path: Path) -> None:
    for name in ("a.toml", "b.toml"):
        (tmp_path / name).write_text("")

    with pytest.raises(UsageError, match="give one TOML file"):
        read_deployments([tmp_path / "a.toml", tmp_path / "b.toml"])


def test_merge_keys_that_explode_end(tmp_path: Path) -> None:
    lines = ["a0: &a0 {" + ", ".join(f"k{i}: 1" for i in range(10)) + "}"]
    for level in range(1, 9):
        merged = ", ".join([f"*a{level - 1}"] * 9)
        lines.append(f"a{level}: &a{level} {{<<: [{merged}]}}")
    path = tmp_path / "bomb.yaml"
    path.write_text("apiVersion: v1\nkind: Pod\n" + "\n".join(lines))

    # Some releases of PyYAML unfold them, others don't: either way it ends, and there is no server.
    with pytest.raises(ConfigurationError, match=r"not valid YAML|starts no server"):
        read_deployments([path])


_PARTS = st.sampled_from(
    [
        "apiVersion: v1\n",
        "kind: Pod\n",
        "services:\n",
        "  ",
        "- ",
        "[",
        "]",
        "{",
        "}",
        ": ",
        "'",
        '"',
        "\\\n",
        "$",
        "${",
        "$(",
        "`",
        "\n",
        "#",
        "<<",
        "&a ",
        "*a",
        "!!python/name:os ",
        "=",
        "\x00",
        "vllm serve m",
        " --model",
        " --enable-lora",
        "python -m sglang.launch_server",
        "docker run ",
        "spec:\n",
        "containers:\n",
        "args:",
        "image: vllm/vllm-openai:v0.33.0\n",
        "A=(",
        ")",
        "é",
    ]
)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(text=st.lists(_PARTS, max_size=25).map("".join))
def test_any_text_is_understood_or_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "anything"
    path.write_text(text, encoding="utf-8", newline="")

    try:
        deployment = read_deployments([path])
    except ConfigurationError:
        return
    assert deployment.servers
    assert shown(written_and_read([path], tmp_path)) == shown(deployment)


def written_and_read(paths: list[Path], tmp_path: Path) -> Deployment:
    folder = tmp_path / "written"
    folder.mkdir(exist_ok=True)
    path = folder / "prefixaudit.toml"
    path.write_text(written_toml(paths), encoding="utf-8")
    return load_deployment(path)


@pytest.mark.parametrize("sample", sorted(path.name for path in SAMPLES.iterdir()))
def test_sample_is_written_as_it_was_understood(sample: str, tmp_path: Path) -> None:
    paths = sorted(path for path in (SAMPLES / sample).iterdir() if path.suffix != ".jsonl")

    assert shown(written_and_read(paths, tmp_path)) == shown(read_deployments(paths))


_NAMES = st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\0"), min_size=1)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_what_is_written_reads_back_to_the_same_facts(data: st.DataObject, tmp_path: Path) -> None:
    """Any command line out of options with any values, some of them unknown to the script."""
    words = ["vllm", "serve"]
    for option in data.draw(
        st.lists(
            st.sampled_from(
                [
                    "--model",
                    "--revision",
                    "--served-model-name",
                    "--max-model-len",
                    "--enable-lora",
                    "--lora-modules",
                    "--hf-overrides",
                    "--kv-cache-dtype",
                    "--dtype",
                    "--rope-theta",
                    "--enable-prompt-embeds",
                    "--block-size",
                    "--gpu-memory-utilization",
                    "$UNKNOWN",
                ]
            ),
            unique=True,
        )
    ):
        words.append(option)
        match option:
            case "--max-model-len" | "--block-size":
                words.append(str(data.draw(st.integers(1, 2**20))))
            case "--rope-theta" | "--gpu-memory-utilization":
                words.append(repr(data.draw(st.floats(0, 1e30))))
            case "--hf-overrides":
                value = data.draw(st.dictionaries(_NAMES, st.one_of(_NAMES, st.integers())))
                words.append(shlex.quote(json.dumps(value)))
            case "--lora-modules":
                words.append(shlex.quote(f"{data.draw(_NAMES)}={data.draw(_NAMES)}"))
            case "--enable-lora" | "--enable-prompt-embeds" | "$UNKNOWN":
                pass
            case _:
                words.append(data.draw(st.one_of(st.just("$V"), _NAMES.map(shlex.quote))))
    path = tmp_path / "serve.sh"
    path.write_text(" ".join(words), encoding="utf-8", newline="")

    understood = read_deployments([path])

    assert shown(written_and_read([path], tmp_path)) == shown(understood)
    if "$UNKNOWN" in words:
        assert only_server(understood).settings.get("trust_remote_code", UNKNOWN) is UNKNOWN


@pytest.mark.parametrize(
    "script",
    [
        'bash -euo pipefail -c "vllm serve org/model --port $PORT --enable-lora"',
        "srun --nodes=1 bash --norc -c 'vllm serve org/model --enable-lora --port $PORT'",
        'ssh host "vllm serve org/model --enable-lora --port $(free_port)"',
        "uv run --with vllm vllm serve org/model --enable-lora --port $PORT",
    ],
)
def test_server_in_a_text_for_another_shell_is_read(tmp_path: Path, script: str) -> None:
    server = only_server(read(tmp_path, serve__sh=script))

    assert (server.settings["enable_lora"], server.identity.model) == (True, "org/model")


@pytest.mark.parametrize(
    "script",
    [
        '"$VIRTUAL_ENV/bin/vllm" serve org/model --enable-lora',
        "$PYTHON -m vllm.entrypoints.openai.api_server --model org/model --enable-lora",
        "exec ${HOME}/bin/python3 -m vllm.entrypoints.openai.api_server --model org/model"
        " --enable-lora",
    ],
)
def test_program_of_an_unknown_folder_is_known_by_its_name(tmp_path: Path, script: str) -> None:
    server = only_server(read(tmp_path, serve__sh=script))

    assert (server.settings["enable_lora"], server.identity.model) == (True, "org/model")


def test_secret_in_a_pods_script_hides_only_itself(tmp_path: Path) -> None:
    server = only_server(
        read(
            tmp_path,
            pod__yaml="""
            apiVersion: v1
            kind: Pod
            metadata: {name: server}
            spec:
              containers:
              - image: vllm/vllm-openai:v0.10.1
                command: [sh, -c]
                args: ["vllm serve org/model -tp $(TP) --api-key '$(KEY)' --max-model-len $(LEN)"]
                env:
                - {name: TP, value: "2"}
                - {name: KEY, valueFrom: {secretKeyRef: {name: secret, key: key}}}
                - {name: LEN, valueFrom: {secretKeyRef: {name: secret, key: len}}}
            """,
        )
    )

    assert server.settings["tensor_parallel_size"] == 2
    assert "max_model_len" not in server.settings


def test_router_in_a_servers_pod_hides_nothing_of_the_server(tmp_path: Path) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text(
        """
        apiVersion: v1
        kind: Pod
        metadata: {name: server}
        spec:
          containers:
          - image: vllm/vllm-openai:v0.30.0
            args: [--model, org/model, --max-model-len, $(LEN)]
            env: [{name: LEN, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]
          - image: ghcr.io/llm-d/llm-d-inference-scheduler:v0.3.0
        """
    )

    text = written_toml([path])

    assert "# not known: --max-model-len: $(LEN) isn't known" in text
    assert [tier.name for tier in read_deployments([path]).tiers if tier.name != "pool"] == [
        "llm-d"
    ]


def test_variable_in_a_services_script_hides_only_itself(tmp_path: Path) -> None:
    server = only_server(
        read(
            tmp_path,
            compose__yaml="""
            services:
              server:
                image: vllm/vllm-openai:v0.10.1
                entrypoint: [sh, -c]
                command: ["vllm serve org/model --api-key ${KEY} -tp ${TP:-4}"]
            """,
        )
    )

    assert server.settings["tensor_parallel_size"] == 4


def test_command_that_is_no_command_names_no_model(tmp_path: Path) -> None:
    text = "services: {server: {image: 'vllm/vllm-openai:v0.10.1', command: {model: org}}}"
    server = only_server(read(tmp_path, compose__yaml=text))

    assert server.identity.model is UNKNOWN


def test_store_of_a_configuration_file_is_a_tier(tmp_path: Path) -> None:
    deployment = read(
        tmp_path,
        config__yaml="model: org/model\nkv-transfer-config: {kv_connector: MooncakeStoreConnector}",
    )

    assert [tier.name for tier in deployment.tiers if tier.name != "pool"] == ["mooncake"]


def test_key_that_stands_twice_is_refused_with_its_line(tmp_path: Path) -> None:
    text = (
        "services:\n  a:\n    image: vllm/vllm-openai:v0.9.2\n    image: vllm/vllm-openai:v0.9.0\n"
    )

    with pytest.raises(ConfigurationError, match=r"yaml:4: a key stands twice"):
        read(tmp_path, compose__yaml=text)


def test_own_key_may_override_a_merged_one(tmp_path: Path) -> None:
    text = """
    x-common: &common {image: "vllm/vllm-openai:v0.9.0", command: --model org/model}
    services: {server: {<<: *common, image: "vllm/vllm-openai:v0.9.2"}}
    """

    server = only_server(read(tmp_path, compose__yaml=text))

    assert server.engine is not None
    assert server.engine.version == "0.9.2"


def test_aliases_that_unfold_without_end_are_refused(tmp_path: Path) -> None:
    """Nine values of nine values, ten deep: 3.5e9 of them in a few hundred bytes."""
    layers = "".join(f"l{i + 1}: &l{i + 1} [{', '.join([f'*l{i}'] * 9)}]\n" for i in range(10))
    text = f"l0: &l0 [x]\n{layers}services: {{a: {{image: vllm/vllm-openai, command: *l10}}}}\n"

    with pytest.raises(ConfigurationError, match="aliases unfold to a million"):
        read(tmp_path, compose__yaml=text)

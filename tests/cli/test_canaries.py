"""No prompt text, salt, key or password in any output: marks are planted everywhere and looked for.

Each mark tells its field, so that a failure names what leaked. Names that a report needs stay
readable: request ids, tenants, models, adapters, servers and paths.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from prefixaudit.render import RENDERERS
from tests.cli.running import Ran, Runner

MARK = "cana7y"
SAMPLE = Path(__file__).parents[2] / "samples" / "support-chat"


def mark(field: str) -> str:
    return f"{MARK}-{field}"


def leaked(*texts: str) -> set[str]:
    """Return the marks in texts: as they are, escaped, or in another case."""
    plain = "\n".join(texts)
    return set(re.findall(rf"{MARK}[\\\w&;#%-]*", plain, re.IGNORECASE))


def record(number: int, tenant: str, salt: str) -> dict[str, Any]:
    """A gateway's record with a mark in every field that is private."""
    content = f"{mark('prompt')} " * 40
    return {
        "timestamp": f"2026-03-02T09:00:{number:02d}Z",
        "request_id": f"req-{number}",
        "path": "/v1/chat/completions",
        "status": 200,
        "headers": {
            "x-tenant-id": tenant,
            "authorization": f"Bearer {mark('bearer')}",
            "x-api-key": mark("api-key"),
            "cookie": mark("cookie"),
            "x-other": mark("header"),
        },
        "note": mark("field"),
        "body": {
            "model": "harbor-8b-chat",
            "cache_salt": salt,
            "extra_key": mark("extra-key"),
            "user": mark("user"),
            "metadata": {mark("metadata-key"): mark("metadata")},
            "messages": [
                {"role": "system", "content": content, "name": mark("message-name")},
                {"role": "user", "content": f"{mark('question')} {number}"},
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [
                        {
                            "id": mark("call"),
                            "type": "function",
                            "function": {"name": "f", "arguments": f'{{"a": "{mark("args")}"}}'},
                        }
                    ],
                },
                {"role": "tool", "tool_call_id": mark("call"), "content": mark("result")},
            ],
            "tools": [
                {
                    "type": "function",
                    "function": {"name": mark("tool"), "description": mark("tool-text")},
                }
            ],
        },
        "response": {"choices": [{"message": {"role": "assistant", "content": mark("answer")}}]},
    }


MANIFEST = f"""
# {mark("comment")}
apiVersion: v1
kind: ConfigMap
metadata: {{name: c}}
data:
  other.txt: "{mark("config-map")}"
  lmcache.yaml: |
    chunk_size: 64
    remote_url: "redis://{mark("redis-user")}:{mark("redis-password")}@store:6379?p={mark("query")}"
    extra_config: {{token: "{mark("lmcache-extra")}"}}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: chat
  annotations: {{note: "{mark("annotation")}"}}
spec:
  template:
    spec:
      containers:
        - name: vllm
          image: vllm/vllm-openai:v0.10.2
          args:
            - --model=harbor-8b-chat
            - --api-key={mark("api-key-option")}
            - --hf-token={mark("hf-token")}
            - --unknown-option={mark("unknown-option")}
            - --enable-lora
            - --lora-modules=sql=/adapters/sql
            - "--chat-template={{{{ '{mark("template")}' }}}}"
            - >-
              --kv-transfer-config={{"kv_connector":"LMCacheConnectorV1","kv_role":"kv_both",
              "kv_connector_extra_config":{{"password":"{mark("connector")}"}}}}
          env:
            - {{name: HF_TOKEN, value: "{mark("env-token")}"}}
            - {{name: VLLM_API_KEY, value: "{mark("env-api-key")}"}}
            - {{name: LMCACHE_CONFIG_FILE, value: /etc/lmcache.yaml}}
            - {{name: LMCACHE_REMOTE_PASSWORD, value: "{mark("lmcache-env")}"}}
"""


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    log = tmp_path / "log.jsonl"
    salts = [mark("salt"), mark("salt"), mark("other-salt"), "", mark("salt"), "acme"]
    tenants = ["acme", "bob", "acme", "bob", "acme", "bob"]
    lines = [
        json.dumps(record(number, tenant, salt))
        for number, (tenant, salt) in enumerate(zip(tenants, salts, strict=True))
    ]
    # Records that are broken in ways that tempt a message to quote them.
    lines += [
        f'{{"body": {{"model": "m", "prompt": "{mark("cut")}',
        json.dumps({"body": {"model": "m", "messages": mark("no-list")}}),
        json.dumps({"body": {"model": "m", "prompt_token_ids": [mark("no-id")]}}),
        mark("no-json"),
    ]
    log.write_text("\n".join(lines) + "\n")
    manifest = tmp_path / "deployment.yaml"
    manifest.write_text(MANIFEST)
    prefix = tmp_path / "public.txt"
    prefix.write_text(mark("public-prefix"))
    toml = tmp_path / "prefixaudit.toml"
    toml.write_text(
        f"""# {mark("toml-comment")}
[model]
path = "{SAMPLE / "model"}"
[tenant]
source = "header:x-tenant-id"
[[public_prefixes]]
text_file = "public.txt"
[[public_prefixes]]
message = {{ role = "system", content = "{mark("public-message")}" }}
[budgets]
min_safe_hit_rate = 0.99
max_cross_tenant_private_tokens = 0
"""
    )
    return {"log": log, "manifest": manifest, "toml": toml, "folder": tmp_path}


def everything(ran: Ran, *paths: Path) -> list[str]:
    return [ran.out, ran.err, *(path.read_bytes().decode("latin-1") for path in paths)]


def test_marks_are_found_where_they_are() -> None:
    """The search itself: a leak in any of the forms that outputs have is seen."""
    text = json.dumps(mark("x")), mark("y").upper(), mark("z").replace("-", "\\-")

    assert len(leaked(*text)) == 3


@pytest.mark.parametrize("name", RENDERERS.names)
def test_gate_leaks_nothing(cli: Runner, files: dict[str, Path], name: str) -> None:
    if RENDERERS[name].render_gate is None:
        pytest.skip("no format of gates")
    ran = cli(
        "gate",
        *(files["manifest"], files["toml"], "--log", files["log"], "--diff", files["toml"]),
        *("--format", name, "--fail-on", "informational", "--fail-on-inconclusive"),
        *("--write-baseline", files["folder"] / "baseline.json"),
    )

    assert ran.out
    assert leaked(*everything(ran, files["folder"] / "baseline.json")) == set()


@pytest.mark.parametrize("name", RENDERERS.names)
def test_analyze_leaks_nothing(cli: Runner, files: dict[str, Path], name: str) -> None:
    rows = files["folder"] / "rows.jsonl"
    ran = cli(
        "analyze",
        *(files["log"], "-d", files["toml"], "--format", name, "--show-skipped"),
        *("--per-request", rows),
    )

    assert ran.out
    assert rows.stat().st_size
    assert leaked(*everything(ran, rows)) == set()


def test_init_keeps_no_key_token_or_password(cli: Runner, files: dict[str, Path]) -> None:
    ran = cli("init", files["manifest"])

    assert "api_key_set = true" in ran.out
    assert leaked(ran.out, ran.err) == set()


@pytest.mark.parametrize(
    "text",
    [
        f"vllm serve m --api-key {mark('a')} --hf-token {mark('b')} $(cat {mark('c')})\n",
        f"TOKEN={mark('a')}\nexport KEY={mark('b')}\nvllm serve m --max-model-len ${{X:?no}}\n",
        f"vllm serve m --max-model-len ${{X:?{mark('c')}}} --revision ${{A:+{mark('d')}}}\n",
        f"docker run -e HF_TOKEN={mark('a')} vllm/vllm-openai:v0.33.0 --model m\n",
        f"curl -H 'Authorization: Bearer {mark('a')}' x; vllm serve m --x={mark('b')}$Y\n",
    ],
)
def test_secrets_of_a_script_stay_in_it(cli: Runner, tmp_path: Path, text: str) -> None:
    path = tmp_path / "serve.sh"
    path.write_text(text)

    for command in ("init", "gate"):
        ran = cli(command, path)

        assert ran.code in (0, 1), ran.err
        assert leaked(ran.out, ran.err) == set()


@pytest.mark.parametrize(
    "text",
    [
        f"apiVersion: v1\nkind: Pod\nspec: [{mark('a')}\n",
        f"services: {{v: {{image: x, command: [{mark('a')}]}}}}\n",
        f"just {mark('a')}\n",
    ],
)
def test_message_about_a_broken_file_does_not_quote_it(
    cli: Runner, tmp_path: Path, text: str
) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(text)

    ran = cli("gate", path)

    assert ran.code == 2
    assert leaked(ran.out, ran.err) == set()

"""A spec in a real editor's language server: yaml-language-server, driven over its standard streams."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from generator.language.schema import FILE, MODELINE, text
from generator.language.vocabulary import SWIZZLE

pytestmark = [
    pytest.mark.install,
    pytest.mark.skipif(shutil.which("npm") is None, reason="npm installs the language server"),
]

VERSION = "1.25.0"


class Server:
    """A language server, to which requests are sent one after another."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._in: IO[bytes] = process.stdin
        self._out: IO[bytes] = process.stdout
        self._number = 0

    def _send(self, **message: Any) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self._in.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self._in.flush()

    def _receive(self) -> dict[str, Any]:
        length = 0
        while (line := self._out.readline().strip()) or not length:
            assert line, "the language server has ended"
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        found: dict[str, Any] = json.loads(self._out.read(length))
        if found.get("method") == "workspace/configuration":
            # No schema but that of the modeline: nothing is fetched.
            settings = {"yaml": {"schemaStore": {"enable": False}, "completion": True, "hover": True, "validate": True}}
            wanted = [settings.get(item.get("section"), {}) for item in found["params"]["items"]]
            self._send(id=found["id"], result=wanted)
        elif "method" in found and "id" in found:
            self._send(id=found["id"], result=None)
        return found

    def notify(self, method: str, **params: Any) -> None:
        self._send(method=method, params=params)

    def ask(self, method: str, **params: Any) -> Any:
        """The result of a request."""
        self._number += 1
        self._send(id=self._number, method=method, params=params)
        while (found := self._receive()).get("id") != self._number or "method" in found:
            pass
        return found["result"]

    def told(self, method: str) -> dict[str, Any]:
        """The parameters of the next notification."""
        while (found := self._receive()).get("method") != method:
            pass
        params: dict[str, Any] = found["params"]
        return params


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The language server's program, installed by npm."""
    folder = tmp_path_factory.mktemp("npm")
    call = ["npm", "install", "--no-audit", "--no-fund", f"yaml-language-server@{VERSION}"]
    done = subprocess.run(call, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "node_modules" / ".bin" / "yaml-language-server"


@pytest.fixture
def server(command: Path, tmp_path: Path) -> Iterator[Server]:
    (tmp_path / FILE).write_text(text(), encoding="utf-8")
    with subprocess.Popen([command, "--stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        found = Server(process)
        capabilities = {"workspace": {"configuration": True}, "textDocument": {"completion": {}, "hover": {}}}
        found.ask("initialize", processId=None, rootUri=tmp_path.as_uri(), capabilities=capabilities)
        found.notify("initialized")
        yield found
        process.kill()


def opened(server: Server, folder: Path, spec: str, name: str = "family.yaml") -> dict[str, Any]:
    """The document of a spec that an editor has opened."""
    uri = (folder / name).as_uri()
    document = {"uri": uri, "languageId": "yaml", "version": 1, "text": f"{MODELINE}\n{spec}"}
    server.notify("textDocument/didOpen", textDocument=document)
    return {"uri": uri}


def completed(server: Server, document: dict[str, Any], line: int, character: int) -> dict[str, Any]:
    """The words that are offered, each with what is told of it."""
    at = {"line": line, "character": character}
    found = server.ask("textDocument/completion", textDocument=document, position=at)["items"]
    return {item["label"]: item.get("documentation") for item in found}


SPEC = "summary: A product.\nlayout: rcr\ndtype: bf16\n"


def mistakes(server: Server, folder: Path, spec: str, name: str = "family.yaml") -> dict[int, str]:
    """What the editor underlines: the line, below the modeline, and the message."""
    opened(server, folder, spec, name)
    found = server.told("textDocument/publishDiagnostics")["diagnostics"]
    return {each["range"]["start"]["line"]: each["message"] for each in found}


def test_mistakes_are_underlined(server: Server, tmp_path: Path) -> None:
    assert mistakes(server, tmp_path, SPEC + "epilogue: [none, bias+gelu, [bias, {clamp: {min: 0}}]]\n") == {}
    wrong = "swizle: linear\nmasking: [auto, of]\nepilogue: bias+gleu\nselect: table\n"
    found = mistakes(server, tmp_path, SPEC + wrong, "other.yaml")
    assert found.keys() == {1, 4, 5, 6}
    assert "tuned" in found[1] and "swizle" in found[4] and "mnk" in found[5] and "gelu_tanh" in found[6]


def test_words_and_keys_are_completed_with_their_meaning(server: Server, tmp_path: Path) -> None:
    told = completed(server, opened(server, tmp_path, SPEC + "swizzle: \n"), 4, 9)
    assert SWIZZLE.keys() <= told.keys() and SWIZZLE["hilbert"].meaning in str(told["hilbert"])
    document = opened(server, tmp_path, SPEC + "in\n", "other.yaml")
    assert "invariant" in completed(server, document, 4, 2)
    told = server.ask("textDocument/hover", textDocument=document, position={"line": 2, "character": 2})
    assert "Memory layout of A" in str(told["contents"])

"""Certificates for tests, made by the openssl command: a CA, and what it says of others."""

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LOCAL = "DNS:localhost,IP:127.0.0.1"
CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")


@dataclass(frozen=True)
class Pair:
    """Files of a certificate and its key."""

    cert: str
    key: str

    def server(self, mode: str = "permissive", **more: Any) -> dict[str, Any]:
        """Settings of a server that has it."""
        paths = {"tls_server_cert_path": self.cert, "tls_server_key_path": self.key}
        return {"tls_server_mode": mode} | paths | more

    def client(self) -> dict[str, Any]:
        """Settings of a client that has it."""
        return {"tls_cert": self.cert, "tls_key": self.key}


class Authority:
    """A CA in a folder; ``pem`` is its own certificate."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._key, self.pem = folder, str(folder / f"{name}.key"), str(folder / f"{name}.pem")
        openssl("req", "-x509", *CURVE, "-nodes", "-keyout", self._key, "-out", self.pem, "-subj", f"/CN={name}")

    def issue(self, name: str, alt: str = LOCAL, *, days: int = 2, password: str = "") -> Pair:
        """A certificate; with days below 0 one that has ended."""
        made = {end: str(self._folder / f"{name}.{end}") for end in ("csr", "key", "pem", "ext")}
        hidden = ("-passout", f"pass:{password}") if password else ("-nodes",)
        openssl("req", "-new", *CURVE, *hidden, "-keyout", made["key"], "-out", made["csr"], "-subj", f"/CN={name}")
        Path(made["ext"]).write_text(f"subjectAltName={alt}\n", encoding="utf-8")
        openssl(
            "x509", "-req", "-in", made["csr"], "-CA", self.pem, "-CAkey", self._key, "-CAcreateserial", "-out",
            made["pem"], "-days", str(days), "-extfile", made["ext"],
        )  # fmt: skip
        return Pair(made["pem"], made["key"])


def openssl(*arguments: str) -> str:
    """What it prints. Tests that come to it are marked ``openssl``."""
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout

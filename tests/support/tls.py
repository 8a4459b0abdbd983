"""A server that speaks TLS, and what its clients need for it."""

from pathlib import Path

import trustme

from tests.support.servers import Server, free_port


class Tls:
    """A server that speaks TLS only, with a certificate for 127.0.0.1 and `right.test`."""

    def __init__(self, binary: str, directory: Path, *, client_certificates: str = "no") -> None:
        self.authority = trustme.CA()
        self.ca = directory / "ca.pem"
        self.authority.cert_pem.write_to_path(str(self.ca))
        self.stranger = directory / "stranger.pem"
        trustme.CA().cert_pem.write_to_path(str(self.stranger))
        self.certificate = directory / "cert.pem"
        self.key = directory / "key.pem"
        issued = self.authority.issue_cert("127.0.0.1", "right.test")
        issued.cert_chain_pems[0].write_to_path(str(self.certificate))
        issued.private_key_pem.write_to_path(str(self.key))
        self.port = free_port()
        self.server = Server(
            binary, directory, "--tls-port", str(self.port), "--tls-cert-file", str(self.certificate),
            "--tls-key-file", str(self.key), "--tls-ca-cert-file", str(self.ca),
            "--tls-auth-clients", client_certificates,
        )  # fmt: skip

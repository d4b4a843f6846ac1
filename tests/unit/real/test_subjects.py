"""Subjects of certificates as Java writes them. The expected texts are those of X500Principal.getName()."""

import subprocess
from pathlib import Path
from ssl import PEM_cert_to_DER_cert

import pytest

from tailrace.real.tls.subjects import subject_of


def make(folder: Path, subject: str) -> bytes:
    out = folder / "certificate.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-utf8"),
            *("-multivalue-rdn", "-subj", subject, "-keyout", str(folder / "key.pem"), "-out", str(out)),
        ],
        check=True,
        capture_output=True,
        timeout=60,
    )
    return PEM_cert_to_DER_cert(out.read_text())


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("/C=DE/ST=Berlin/L=Berlin/O=acme/OU=eng/CN=alice", "CN=alice,OU=eng,O=acme,L=Berlin,ST=Berlin,C=DE"),
        ("/DC=org/DC=acme/UID=al/street=Main 1/CN=x", "CN=x,STREET=Main 1,UID=al,DC=acme,DC=org"),
        ('/CN=a,b+c=d;e<f>g#h"i', 'CN=a\\,b\\+c\\=d\\;e\\<f\\>g\\#h\\"i'),
        ("/CN= two blanks  ", "CN=\\ two blanks\\ \\ "),
        ("/CN=Zoë Müller", "CN=Zoë Müller"),
        ("/CN=b\\\\c", "CN=b\\\\c"),
        ("/O=acme/CN=a+OU=b", "CN=a+OU=b,O=acme"),
        # An attribute without a keyword in RFC 2253: its number, and its value as it is encoded.
        ("/CN=a/emailAddress=a@b", "1.2.840.113549.1.9.1=#1603614062,CN=a"),
        ("/CN=a/serialNumber=7", "2.5.4.5=#130137,CN=a"),
    ],
)
def test_a_subject_is_told_as_java_tells_it(tmp_path, given, told):
    if "+c=" in given:
        given = given.replace("+", "\\+")  # For openssl a plus parts two attributes of one name.
    assert subject_of(make(tmp_path, given)) == told


def test_what_is_no_certificate(tmp_path):
    whole = make(tmp_path, "/CN=alice")
    for broken in (b"", b"\x30", b"garbage", whole[:20], whole[:150], b"\x30\x84\xff\xff\xff\xff", b"\x30\x00"):
        with pytest.raises(ValueError):  # noqa: PT011 - any will do
            subject_of(broken)

"""Why a certificate was not trusted, in words of the settings that would change it. The same for both sides."""

from __future__ import annotations

import ssl

WEAK_SIGNATURE = (
    "it, or an authority above it, was signed with SHA-1 or MD5, which OpenSSL takes no more: sign it with SHA-256"
)
WEAK_KEY = "its key, or that of an authority above it, is too short for OpenSSL: take RSA of 2048 bits, or P-256"
# By OpenSSL's numbers of what a verification found (X509_V_ERR_...).
_CAUSES = {
    3: "there is no revocation list of the authority that signed it: add one to ssl.crl.location",
    9: "it is not valid yet: compare the clocks, or wait",
    10: "it has expired: have it renewed",
    11: "the revocation list of its authority is not valid yet: see ssl.crl.location",
    12: "the revocation list of its authority is out of date: put a newer one into ssl.crl.location",
    18: "it has signed itself: take one of an authority in ssl.truststore.location, or add it there",
    19: "its authority is unknown: name that in ssl.truststore.location",
    20: "its authority is unknown: name that in ssl.truststore.location",
    21: "its authority is unknown: name that in ssl.truststore.location",
    22: "there are too many certificates between it and an authority that is known",
    23: "it was revoked, says a list in ssl.crl.location",
    24: "it was signed by a certificate that is no authority's",
    25: "there are more certificates between it and its authority than that allows",
    26: "it is meant for something else: its extended key usage lacks this side of TLS (clientAuth or serverAuth)",
    66: WEAK_KEY,
    67: WEAK_KEY,
    68: WEAK_SIGNATURE,
    79: "it was signed by a certificate that is no authority's",
}


def cause_of_distrust(error: ssl.SSLCertVerificationError) -> str:
    return _CAUSES.get(error.verify_code, f"{error.verify_message}: see ssl.truststore.location")

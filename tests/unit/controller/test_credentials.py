"""SCRAM credentials as metadata: what is taken, what is refused, and how they are stored."""

from tailrace.controller.image import MetadataImage, ScramCredential
from tailrace.controller.replay import Replay
from tailrace.controller.security.credentials import ITERATIONS_MAX, ITERATIONS_MIN, derive_keys
from tailrace.controller.snapshot import records_of
from tailrace.model.errors import ErrorCode
from tailrace.model.security import ScramMechanism
from tailrace.wire.apis.security import AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse

from .cluster import Cluster

SHA_256, SHA_512 = ScramMechanism
SALTED = b"salted password"


def upsertion(name: str, mechanism: int = SHA_256, iterations: int = 4096, salted: bytes = SALTED, salt: bytes = b"s"):
    return AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=salt, salted_password=salted
    )


def deletion(name: str, mechanism: int = SHA_256):
    return AlterUserScramCredentialsRequest.ScramCredentialDeletion(name=name, mechanism=mechanism)


def alter(cluster: Cluster, *changes) -> dict[str, int]:
    request = AlterUserScramCredentialsRequest(
        deletions=[each for each in changes if not hasattr(each, "salt")],
        upsertions=[each for each in changes if hasattr(each, "salt")],
    )
    return {each.user: each.error_code for each in cluster.do(request, AlterUserScramCredentialsResponse).results}


def test_a_credential_is_set_and_deleted():
    cluster = Cluster()
    assert alter(cluster, upsertion("alice"), upsertion("bob", SHA_512, 8192)) == {"alice": 0, "bob": 0}
    keys = derive_keys(SHA_512, SALTED)
    assert cluster.image.scram_credentials["bob", SHA_512] == ScramCredential(b"s", *keys, 8192)
    assert alter(cluster, upsertion("alice", iterations=5000)) == {"alice": 0}
    assert cluster.image.scram_credentials["alice", SHA_256].iterations == 5000
    assert alter(cluster, deletion("alice")) == {"alice": 0}
    assert list(cluster.image.scram_credentials) == [("bob", SHA_512)]


def test_what_goes_well_has_no_message():
    """Kafka's message is null then, not empty."""
    request = AlterUserScramCredentialsRequest(upsertions=[upsertion("alice"), upsertion("few", iterations=1)])
    good, wrong = Cluster().do(request, AlterUserScramCredentialsResponse).results
    assert (good.error_code, good.error_message) == (0, None)
    assert wrong.error_code == ErrorCode.UNACCEPTABLE_CREDENTIAL
    assert wrong.error_message


def test_each_user_stands_or_falls_alone():
    cluster = Cluster()
    alter(cluster, upsertion("old"))
    told = alter(
        cluster,
        upsertion("good"),
        upsertion("few", iterations=ITERATIONS_MIN - 1),
        upsertion("many", iterations=ITERATIONS_MAX + 1),
        upsertion("odd", mechanism=3),
        upsertion("unsalted", salt=b""),
        upsertion("empty", salted=b""),
        upsertion(""),
        upsertion("twice"),
        upsertion("twice", SHA_512),
        upsertion("old"),
        deletion("old"),
        deletion("gone"),
        deletion("strange", mechanism=0),
    )
    unacceptable = ErrorCode.UNACCEPTABLE_CREDENTIAL
    assert told == {
        "good": 0,
        "few": unacceptable,
        "many": unacceptable,
        "odd": ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        "unsalted": unacceptable,
        "empty": unacceptable,
        "": unacceptable,
        "twice": ErrorCode.DUPLICATE_RESOURCE,
        "old": ErrorCode.DUPLICATE_RESOURCE,
        "gone": ErrorCode.RESOURCE_NOT_FOUND,
        "strange": ErrorCode.UNSUPPORTED_SASL_MECHANISM,
    }
    assert set(cluster.image.scram_credentials) == {("old", SHA_256), ("good", SHA_256)}


def test_credentials_are_part_of_a_snapshot():
    cluster = Cluster()
    alter(cluster, upsertion("alice"))
    alter(cluster, upsertion("alice", SHA_512))
    replay = Replay(MetadataImage(cluster.image.cluster_id))
    for offset, record in enumerate(record for group in records_of(cluster.image) for record in group):
        replay.replay_record(offset, record)
    assert replay.image().scram_credentials == cluster.image.scram_credentials
    assert len(replay.image().scram_credentials) == 2

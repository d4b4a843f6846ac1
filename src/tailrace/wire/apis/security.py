"""Authentication, access control, delegation tokens and SCRAM credentials: requests and responses.

Declarations only, in the language of `wire.schema`; nothing here decides anything. A docstring tells what a version
changed in meaning; what it changed in form stands in the fields.
"""

from __future__ import annotations

from tailrace.wire.apis.keys import ApiKey
from tailrace.wire.schema import Message, Struct, array, bytes_, int8, int16, int32, int64, string


class SaslHandshakeRequest(Message, api_key=ApiKey.SASL_HANDSHAKE, versions="0-1"):
    """After version 0 the SASL exchange is raw; after 1 it goes through SaslAuthenticate (KIP-152)."""

    mechanism: str = string("0+")


class SaslHandshakeResponse(Message, api_key=ApiKey.SASL_HANDSHAKE, versions="0-1"):
    error_code: int = int16("0+")
    mechanisms: list[str] = array(string, "0+")


class DescribeAclsRequest(Message, api_key=ApiKey.DESCRIBE_ACLS, versions="1-3", flexible="2+"):
    """Resource pattern types since 1 (KIP-290)."""

    resource_type_filter: int = int8("0+")
    resource_name_filter: str | None = string("0+", nullable="0+")
    pattern_type_filter: int = int8("1+", default=3)
    principal_filter: str | None = string("0+", nullable="0+")
    host_filter: str | None = string("0+", nullable="0+")
    operation: int = int8("0+")
    permission_type: int = int8("0+")


class DescribeAclsResponse(Message, api_key=ApiKey.DESCRIBE_ACLS, versions="1-3", flexible="2+"):
    class AclDescription(Struct):
        principal: str = string("0+")
        host: str = string("0+")
        operation: int = int8("0+")
        permission_type: int = int8("0+")

    class DescribeAclsResource(Struct):
        resource_type: int = int8("0+")
        resource_name: str = string("0+")
        pattern_type: int = int8("1+", default=3)
        acls: list[DescribeAclsResponse.AclDescription] = array("AclDescription", "0+")

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    resources: list[DescribeAclsResource] = array(DescribeAclsResource, "0+")


class CreateAclsRequest(Message, api_key=ApiKey.CREATE_ACLS, versions="1-3", flexible="2+"):
    """Resource pattern types since 1 (KIP-290)."""

    class AclCreation(Struct):
        resource_type: int = int8("0+")
        resource_name: str = string("0+")
        resource_pattern_type: int = int8("1+", default=3)
        principal: str = string("0+")
        host: str = string("0+")
        operation: int = int8("0+")
        permission_type: int = int8("0+")

    creations: list[AclCreation] = array(AclCreation, "0+")


class CreateAclsResponse(Message, api_key=ApiKey.CREATE_ACLS, versions="1-3", flexible="2+"):
    class AclCreationResult(Struct):
        error_code: int = int16("0+")
        error_message: str | None = string("0+", nullable="0+")

    throttle_time_ms: int = int32("0+")
    results: list[AclCreationResult] = array(AclCreationResult, "0+")


class DeleteAclsRequest(Message, api_key=ApiKey.DELETE_ACLS, versions="1-3", flexible="2+"):
    """Resource pattern types since 1 (KIP-290)."""

    class DeleteAclsFilter(Struct):
        resource_type_filter: int = int8("0+")
        resource_name_filter: str | None = string("0+", nullable="0+")
        pattern_type_filter: int = int8("1+", default=3)
        principal_filter: str | None = string("0+", nullable="0+")
        host_filter: str | None = string("0+", nullable="0+")
        operation: int = int8("0+")
        permission_type: int = int8("0+")

    filters: list[DeleteAclsFilter] = array(DeleteAclsFilter, "0+")


class DeleteAclsResponse(Message, api_key=ApiKey.DELETE_ACLS, versions="1-3", flexible="2+"):
    class DeleteAclsMatchingAcl(Struct):
        error_code: int = int16("0+")
        error_message: str | None = string("0+", nullable="0+")
        resource_type: int = int8("0+")
        resource_name: str = string("0+")
        pattern_type: int = int8("1+", default=3)
        principal: str = string("0+")
        host: str = string("0+")
        operation: int = int8("0+")
        permission_type: int = int8("0+")

    class DeleteAclsFilterResult(Struct):
        error_code: int = int16("0+")
        error_message: str | None = string("0+", nullable="0+")
        matching_acls: list[DeleteAclsResponse.DeleteAclsMatchingAcl] = array("DeleteAclsMatchingAcl", "0+")

    throttle_time_ms: int = int32("0+")
    filter_results: list[DeleteAclsFilterResult] = array(DeleteAclsFilterResult, "0+")


class SaslAuthenticateRequest(Message, api_key=ApiKey.SASL_AUTHENTICATE, versions="0-2", flexible="2+"):
    auth_bytes: bytes = bytes_("0+")


class SaslAuthenticateResponse(Message, api_key=ApiKey.SASL_AUTHENTICATE, versions="0-2", flexible="2+"):
    """v1 tells when to authenticate again (KIP-368)."""

    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    auth_bytes: bytes = bytes_("0+")
    session_lifetime_ms: int = int64("1+")


class CreateDelegationTokenRequest(Message, api_key=ApiKey.CREATE_DELEGATION_TOKEN, versions="1-3", flexible="2+"):
    """For somebody else since 3 (KIP-373)."""

    class CreatableRenewers(Struct):
        principal_type: str = string("0+")
        principal_name: str = string("0+")

    owner_principal_type: str | None = string("3+", nullable="3+")
    owner_principal_name: str | None = string("3+", nullable="3+")
    renewers: list[CreatableRenewers] = array(CreatableRenewers, "0+")
    max_lifetime_ms: int = int64("0+")


class CreateDelegationTokenResponse(Message, api_key=ApiKey.CREATE_DELEGATION_TOKEN, versions="1-3", flexible="2+"):
    error_code: int = int16("0+")
    principal_type: str = string("0+")
    principal_name: str = string("0+")
    token_requester_principal_type: str = string("3+")
    token_requester_principal_name: str = string("3+")
    issue_timestamp_ms: int = int64("0+")
    expiry_timestamp_ms: int = int64("0+")
    max_timestamp_ms: int = int64("0+")
    token_id: str = string("0+")
    hmac: bytes = bytes_("0+")
    throttle_time_ms: int = int32("0+")


class RenewDelegationTokenRequest(Message, api_key=ApiKey.RENEW_DELEGATION_TOKEN, versions="1-2", flexible="2+"):
    hmac: bytes = bytes_("0+")
    renew_period_ms: int = int64("0+")


class RenewDelegationTokenResponse(Message, api_key=ApiKey.RENEW_DELEGATION_TOKEN, versions="1-2", flexible="2+"):
    error_code: int = int16("0+")
    expiry_timestamp_ms: int = int64("0+")
    throttle_time_ms: int = int32("0+")


class ExpireDelegationTokenRequest(Message, api_key=ApiKey.EXPIRE_DELEGATION_TOKEN, versions="1-2", flexible="2+"):
    """A period below 0 means at once."""

    hmac: bytes = bytes_("0+")
    expiry_time_period_ms: int = int64("0+")


class ExpireDelegationTokenResponse(Message, api_key=ApiKey.EXPIRE_DELEGATION_TOKEN, versions="1-2", flexible="2+"):
    error_code: int = int16("0+")
    expiry_timestamp_ms: int = int64("0+")
    throttle_time_ms: int = int32("0+")


class DescribeDelegationTokenRequest(Message, api_key=ApiKey.DESCRIBE_DELEGATION_TOKEN, versions="1-3", flexible="2+"):
    """Null owners ask for all; none for nothing."""

    class DescribeDelegationTokenOwner(Struct):
        principal_type: str = string("0+")
        principal_name: str = string("0+")

    owners: list[DescribeDelegationTokenOwner] | None = array(DescribeDelegationTokenOwner, "0+", nullable="0+")


class DescribeDelegationTokenResponse(Message, api_key=ApiKey.DESCRIBE_DELEGATION_TOKEN, versions="1-3", flexible="2+"):
    class DescribedDelegationTokenRenewer(Struct):
        principal_type: str = string("0+")
        principal_name: str = string("0+")

    class DescribedDelegationToken(Struct):
        principal_type: str = string("0+")
        principal_name: str = string("0+")
        token_requester_principal_type: str = string("3+")
        token_requester_principal_name: str = string("3+")
        issue_timestamp: int = int64("0+")
        expiry_timestamp: int = int64("0+")
        max_timestamp: int = int64("0+")
        token_id: str = string("0+")
        hmac: bytes = bytes_("0+")
        renewers: list[DescribeDelegationTokenResponse.DescribedDelegationTokenRenewer] = array(
            "DescribedDelegationTokenRenewer", "0+"
        )

    error_code: int = int16("0+")
    tokens: list[DescribedDelegationToken] = array(DescribedDelegationToken, "0+")
    throttle_time_ms: int = int32("0+")


class DescribeUserScramCredentialsRequest(
    Message, api_key=ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, versions="0", flexible="0+"
):
    """KIP-554. Null users ask for all."""

    class UserName(Struct):
        name: str = string("0+")

    users: list[UserName] | None = array(UserName, "0+", nullable="0+")


class DescribeUserScramCredentialsResponse(
    Message, api_key=ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, versions="0", flexible="0+"
):
    class CredentialInfo(Struct):
        mechanism: int = int8("0+")
        iterations: int = int32("0+")

    class DescribeUserScramCredentialsResult(Struct):
        user: str = string("0+")
        error_code: int = int16("0+")
        error_message: str | None = string("0+", nullable="0+")
        credential_infos: list[DescribeUserScramCredentialsResponse.CredentialInfo] = array("CredentialInfo", "0+")

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    results: list[DescribeUserScramCredentialsResult] = array(DescribeUserScramCredentialsResult, "0+")


class AlterUserScramCredentialsRequest(
    Message, api_key=ApiKey.ALTER_USER_SCRAM_CREDENTIALS, versions="0", flexible="0+"
):
    """KIP-554."""

    class ScramCredentialDeletion(Struct):
        name: str = string("0+")
        mechanism: int = int8("0+")

    class ScramCredentialUpsertion(Struct):
        name: str = string("0+")
        mechanism: int = int8("0+")
        iterations: int = int32("0+")
        salt: bytes = bytes_("0+")
        salted_password: bytes = bytes_("0+")

    deletions: list[ScramCredentialDeletion] = array(ScramCredentialDeletion, "0+")
    upsertions: list[ScramCredentialUpsertion] = array(ScramCredentialUpsertion, "0+")


class AlterUserScramCredentialsResponse(
    Message, api_key=ApiKey.ALTER_USER_SCRAM_CREDENTIALS, versions="0", flexible="0+"
):
    class AlterUserScramCredentialsResult(Struct):
        user: str = string("0+")
        error_code: int = int16("0+")
        error_message: str | None = string("0+", nullable="0+")

    throttle_time_ms: int = int32("0+")
    results: list[AlterUserScramCredentialsResult] = array(AlterUserScramCredentialsResult, "0+")

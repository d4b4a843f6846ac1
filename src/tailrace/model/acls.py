"""The words of access control: resources, operations, patterns, and one ACL. The numbers are Kafka's own, on the wire
and in the metadata log.

An ACL allows or denies a principal, from a host, an operation on the resources that its pattern fits. What follows from
many of them is decided in controller/security/authorizer.
"""

from enum import IntEnum
from typing import NamedTuple

from tailrace.model.errors import ErrorCode

# The only resource of its kind.
CLUSTER_NAME = "kafka-cluster"
# Any name, as the name of a literal pattern; and any host.
WILDCARD = "*"
ANY_PRINCIPAL = "User:*"


class Kind(IntEnum):
    """What may be protected."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class Operation(IntEnum):
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class PatternType(IntEnum):
    LITERAL = 3
    PREFIXED = 4


class Permission(IntEnum):
    DENY = 2
    ALLOW = 3


# In filters alone: every value; and for patterns, all that fit a name.
ANY = 1
MATCH = 2


class Acl(NamedTuple):
    kind: Kind
    name: str
    pattern_type: PatternType
    principal: str  # `Type:name`.
    host: str  # The text of an address, or `*`.
    operation: Operation
    permission: Permission

    def __str__(self) -> str:
        pattern = f"{self.kind.name}:{self.pattern_type.name}:{self.name}"
        return f"{self.permission.name} {self.principal} {self.operation.name} {pattern} from {self.host}"


# What can be done with a resource: the bits of `authorized_operations`.
OPERATIONS: dict[Kind, tuple[Operation, ...]] = {
    Kind.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    Kind.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    Kind.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
}

# What allowing one operation allows as well. Denying READ does not deny DESCRIBE.
IMPLIED_BY: dict[Operation, tuple[Operation, ...]] = {
    Operation.DESCRIBE: (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER),
    Operation.DESCRIBE_CONFIGS: (Operation.ALTER_CONFIGS,),
}

# What whoever may not is told.
REFUSALS: dict[Kind, ErrorCode] = {
    Kind.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    Kind.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    Kind.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    Kind.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    Kind.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    Kind.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}


def bit_field(operations: tuple[Operation, ...]) -> int:
    return sum(1 << operation for operation in operations)

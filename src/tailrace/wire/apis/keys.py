"""The numbers of the APIs, in one place, and which module beside this one declares their messages. Everything else
calls an API by its name here.

Left out are the keys 4 to 7, which Kafka removed.
"""

from enum import IntEnum


class ApiKey(IntEnum):
    module: str

    def __new__(cls, number: int, module: str = "") -> "ApiKey":
        key = int.__new__(cls, number)
        key._value_ = number
        key.module = module
        return key

    PRODUCE = 0, "data"
    FETCH = 1, "data"
    LIST_OFFSETS = 2, "data"
    METADATA = 3, "data"
    OFFSET_COMMIT = 8, "groups"
    OFFSET_FETCH = 9, "groups"
    FIND_COORDINATOR = 10, "groups"
    JOIN_GROUP = 11, "groups"
    HEARTBEAT = 12, "groups"
    LEAVE_GROUP = 13, "groups"
    SYNC_GROUP = 14, "groups"
    DESCRIBE_GROUPS = 15, "groups"
    LIST_GROUPS = 16, "groups"
    SASL_HANDSHAKE = 17, "security"
    API_VERSIONS = 18, "data"
    CREATE_TOPICS = 19, "admin"
    DELETE_TOPICS = 20, "admin"
    DELETE_RECORDS = 21, "data"
    INIT_PRODUCER_ID = 22, "transactions"
    OFFSET_FOR_LEADER_EPOCH = 23, "data"
    ADD_PARTITIONS_TO_TXN = 24, "transactions"
    ADD_OFFSETS_TO_TXN = 25, "transactions"
    END_TXN = 26, "transactions"
    WRITE_TXN_MARKERS = 27, "transactions"
    TXN_OFFSET_COMMIT = 28, "transactions"
    DESCRIBE_ACLS = 29, "security"
    CREATE_ACLS = 30, "security"
    DELETE_ACLS = 31, "security"
    DESCRIBE_CONFIGS = 32, "admin"
    ALTER_CONFIGS = 33, "admin"
    ALTER_REPLICA_LOG_DIRS = 34, "admin"
    DESCRIBE_LOG_DIRS = 35, "admin"
    SASL_AUTHENTICATE = 36, "security"
    CREATE_PARTITIONS = 37, "admin"
    CREATE_DELEGATION_TOKEN = 38, "security"
    RENEW_DELEGATION_TOKEN = 39, "security"
    EXPIRE_DELEGATION_TOKEN = 40, "security"
    DESCRIBE_DELEGATION_TOKEN = 41, "security"
    DELETE_GROUPS = 42, "groups"
    ELECT_LEADERS = 43, "admin"
    INCREMENTAL_ALTER_CONFIGS = 44, "admin"
    ALTER_PARTITION_REASSIGNMENTS = 45, "admin"
    LIST_PARTITION_REASSIGNMENTS = 46, "admin"
    OFFSET_DELETE = 47, "groups"
    DESCRIBE_CLIENT_QUOTAS = 48, "admin"
    ALTER_CLIENT_QUOTAS = 49, "admin"
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50, "security"
    ALTER_USER_SCRAM_CREDENTIALS = 51, "security"
    VOTE = 52, "quorum"
    BEGIN_QUORUM_EPOCH = 53, "quorum"
    END_QUORUM_EPOCH = 54, "quorum"
    DESCRIBE_QUORUM = 55, "quorum"
    ALTER_PARTITION = 56, "quorum"
    UPDATE_FEATURES = 57, "admin"
    ENVELOPE = 58, "quorum"
    FETCH_SNAPSHOT = 59, "quorum"
    DESCRIBE_CLUSTER = 60, "admin"
    DESCRIBE_PRODUCERS = 61, "transactions"
    BROKER_REGISTRATION = 62, "quorum"
    BROKER_HEARTBEAT = 63, "quorum"
    UNREGISTER_BROKER = 64, "admin"
    DESCRIBE_TRANSACTIONS = 65, "transactions"
    LIST_TRANSACTIONS = 66, "transactions"
    ALLOCATE_PRODUCER_IDS = 67, "quorum"
    CONSUMER_GROUP_HEARTBEAT = 68, "groups"
    CONSUMER_GROUP_DESCRIBE = 69, "groups"
    CONTROLLER_REGISTRATION = 70, "quorum"
    GET_TELEMETRY_SUBSCRIPTIONS = 71, "telemetry"
    PUSH_TELEMETRY = 72, "telemetry"
    ASSIGN_REPLICAS_TO_DIRS = 73, "quorum"
    LIST_CONFIG_RESOURCES = 74, "admin"
    DESCRIBE_TOPIC_PARTITIONS = 75, "admin"
    SHARE_GROUP_HEARTBEAT = 76, "shares"
    SHARE_GROUP_DESCRIBE = 77, "shares"
    SHARE_FETCH = 78, "shares"
    SHARE_ACKNOWLEDGE = 79, "shares"
    ADD_RAFT_VOTER = 80, "quorum"
    REMOVE_RAFT_VOTER = 81, "quorum"
    UPDATE_RAFT_VOTER = 82, "quorum"
    INITIALIZE_SHARE_GROUP_STATE = 83, "shares"
    READ_SHARE_GROUP_STATE = 84, "shares"
    WRITE_SHARE_GROUP_STATE = 85, "shares"
    DELETE_SHARE_GROUP_STATE = 86, "shares"
    READ_SHARE_GROUP_STATE_SUMMARY = 87, "shares"
    STREAMS_GROUP_HEARTBEAT = 88, "groups"
    STREAMS_GROUP_DESCRIBE = 89, "groups"
    DESCRIBE_SHARE_GROUP_OFFSETS = 90, "shares"
    ALTER_SHARE_GROUP_OFFSETS = 91, "shares"
    DELETE_SHARE_GROUP_OFFSETS = 92, "shares"
    # Our own, far above Kafka's. Up to 10,099 they are for our commands, or of brokers to brokers, and advertised to
    # nobody. From 10,100 on they are for our brokers and controllers, who advertise them to each other.
    DESCRIBE_GROUP_HISTORY = 10_000, "own"
    DESCRIBE_GROUP_LAG = 10_001, "own"
    LOCATE_OFFSETS = 10_002, "own"
    DESCRIBE_CONNECTIONS = 10_003, "own"
    DESCRIBE_SEGMENTS = 10_004, "own"
    DESCRIBE_AUDIT = 10_005, "own"
    CREATE_MIRROR_LINK = 10_006, "mirrors"
    ALTER_MIRROR_LINK = 10_007, "mirrors"
    OPEN_MIRROR_TOPICS = 10_008, "mirrors"
    DESCRIBE_MIRRORS = 10_009, "mirrors"
    DESCRIBE_QUEUE = 10_010, "own"
    CLOSE_MIRROR_SOURCE = 10_011, "mirrors"
    REVERSE_MIRROR = 10_012, "mirrors"
    REPORT_REPLICAS = 10_100, "own"
    ALLOW_TRUNCATION = 10_101, "own"
    MOVE_LEADER = 10_102, "own"
    REPORT_DEATH = 10_103, "own"
    FOLLOW_MIRROR_SOURCE = 10_104, "mirrors"

    @property
    def is_own(self) -> bool:
        return self >= _FIRST_OWN

    @property
    def is_advertised(self) -> bool:
        return not self.is_own or self >= _FIRST_OF_NODES


_FIRST_OWN = 10_000
_FIRST_OF_NODES = 10_100

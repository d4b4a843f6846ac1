"""Topics `_schemas` in the forms in which registries write them, key and value byte for byte.

CONFLUENT is what Confluent's registry (7.4) was seen to write for the steps that stand beside the records. OTHERS are
forms that a topic may have that was not written by one registry alone: older Confluent versions name a subject of null
in global keys; Karapace once wrote keys in another order, and still writes values in another; Redpanda adds who wrote a
key, and in which turn; the newest Confluent versions say more of a schema than older ones.
"""

NOOP = ('{"keytype":"NOOP","magic":0}', None)
A, B, C = (f'{{\\"type\\":\\"record\\",\\"name\\":\\"{name}\\",\\"fields\\":[]}}' for name in "ABC")
PROTO = 'syntax = \\"proto3\\";\\npackage pay;\\n\\nmessage Money {\\n  int64 cents = 1;\\n}\\n'


def schema(subject: str, version: int, schema_id: int, text: str, *, more: str = "", deleted: str = "false"):
    return (
        f'{{"keytype":"SCHEMA","subject":"{subject}","version":{version},"magic":1}}',
        f'{{"subject":"{subject}","version":{version},"id":{schema_id},{more}"schema":"{text}","deleted":{deleted}}}',
    )


def tombstone(subject: str, version: int):
    return f'{{"keytype":"SCHEMA","subject":"{subject}","version":{version},"magic":1}}', None


def setting(kind: str, subject: str, value: str | None):
    return f'{{"keytype":"{kind}","subject":"{subject}","magic":0}}', value


def reference(name: str, subject: str, version: int = 1) -> str:
    return f'"references":[{{"name":"{name}","subject":"{subject}","version":{version}}}],'


# A step, what it is given, and the records that it writes.
CONFLUENT = [
    (("config", "t", "NONE"), [setting("CONFIG", "t", '{"subject":"t","compatibilityLevel":"NONE"}')]),
    (("register", "t", "A"), [schema("t", 1, 1, A)]),
    (("register", "t", "B"), [schema("t", 2, 2, B)]),
    (("delete version", "t", 1), [schema("t", 1, 1, A, deleted="true")]),
    (("delete version for good", "t", 1), [tombstone("t", 1)]),
    # The schema of id 1 is gone for good, and comes back under a new id.
    (("register", "d", "A"), [schema("d", 1, 3, A)]),
    (("delete subject", "d"), [setting("DELETE_SUBJECT", "d", '{"subject":"d","version":1}')]),
    (("delete subject for good", "d"), [tombstone("d", 1)]),
    (("mode", "r", "READONLY"), [setting("MODE", "r", '{"subject":"r","mode":"READONLY"}')]),
    (("mode", "r", None), [setting("MODE", "r", None)]),
    (
        ("mode", "i", "IMPORT"),
        [
            setting("CLEAR_SUBJECT", "i", '{"subject":"i"}'),
            setting("MODE", "i", '{"subject":"i","mode":"IMPORT"}'),
        ],
    ),
    (("import", "i", "C", 42, 5), [schema("i", 5, 42, C)]),
    (("proto", "money"), [schema("money", 1, 43, PROTO, more='"schemaType":"PROTOBUF",')]),
    (
        ("json with a reference", "order", "amount"),
        [
            schema("amount", 1, 44, '{\\"type\\":\\"integer\\"}', more='"schemaType":"JSON",'),
            schema(
                "order",
                1,
                45,
                '{\\"properties\\":{\\"a\\":{\\"$ref\\":\\"Amount\\"}}}',
                more='"schemaType":"JSON",' + reference("Amount", "amount"),
            ),
        ],
    ),
]

RESPELLED = (
    '{"subject":"spelled","version":1,"id":2,"schema":"{\\"fields\\":[],\\"name\\":\\"A\\",\\"type\\":\\"record\\"}",'
    '"deleted":false}'
)
NEWEST = (
    '{"subject":"new","version":1,"id":4,"guid":"0bd0b4bb-9c0a-4d5b-8f1e-2f4fd4b8a6c1","schemaType":"AVRO",'
    '"metadata":{"tags":null,"properties":{"owner":"me"},"sensitive":null},"ruleSet":null,'
    f'"schema":"{C}","schemaTags":null,"deleted":false,"ts":1790000000000,"offset":8}}'
)
OTHERS = [
    NOOP,
    # Older Confluent, and Karapace: what holds for all.
    ('{"keytype":"CONFIG","subject":null,"magic":0}', '{"compatibilityLevel":"FULL"}'),
    ('{"keytype":"MODE","subject":null,"magic":0}', '{"mode":"READWRITE"}'),
    # Confluent's order of a value is not always the same.
    (
        schema("pb", 1, 1, PROTO)[0],
        f'{{"subject":"pb","version":1,"id":1,"schema":"{PROTO}","deleted":false,"schemaType":"PROTOBUF"}}',
    ),
    # Karapace in its old order of keys, with blanks, and without `deleted`.
    (
        '{"subject":"old","version":1,"magic":1,"keytype":"SCHEMA"}',
        f'{{"subject": "old", "version": 1, "id": 2, "schema": "{A}"}}',
    ),
    ('{"subject":"old","magic":0,"keytype":"CONFIG"}', '{"compatibilityLevel":"NONE"}'),
    # Karapace has one id for two spellings of a schema, and an empty value for a tombstone.
    (schema("spelled", 1, 2, A)[0], RESPELLED),
    schema("short", 1, 1, PROTO.replace("\\n\\n", "\\n"), more='"schemaType":"PROTOBUF",'),
    schema("emptied", 1, 2, A, deleted="true"),
    (tombstone("emptied", 1)[0], ""),
    # Redpanda says which node wrote it, and where it thought that it would stand.
    (
        '{"keytype":"SCHEMA","subject":"panda","version":1,"magic":1,"seq":6,"node":2}',
        f'{{"subject":"panda","version":1,"id":3,"schema":"{B}","deleted":false}}',
    ),
    ('{"keytype":"DELETE_SUBJECT","subject":"gone","magic":0,"seq":7,"node":2}', '{"subject":"gone","version":3}'),
    # The newest Confluent: metadata, rules, a guid, its time and offset; and kinds of keys that others do not know.
    (
        schema("new", 1, 4, C)[0],
        NEWEST,
    ),
    ('{"keytype":"CONTEXT","tenant":"default","context":".c","magic":0}', '{"tenant":"default","context":".c"}'),
    ('{"keytype":"ASSOC","tenant":"default","resourceId":"r","magic":0}', '{"tenant":"default"}'),
]

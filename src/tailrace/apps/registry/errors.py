"""What the registry refuses, in Confluent's codes and words, which clients and people know."""

from __future__ import annotations


class RegistryError(Exception):
    """An answer other than success: the HTTP status, the code of the body, and its message."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


def subject_not_found(subject: str | None) -> RegistryError:
    return RegistryError(404, 40401, f"Subject '{subject}' not found.")


def version_not_found(version: int) -> RegistryError:
    return RegistryError(404, 40402, f"Version {version} not found.")


def schema_not_found(which: object = None) -> RegistryError:
    return RegistryError(404, 40403, "Schema not found" if which is None else f"Schema {which} not found")


def subject_soft_deleted(subject: str) -> RegistryError:
    return RegistryError(404, 40404, f"Subject '{subject}' was soft deleted.Set permanent=true to delete permanently")


def subject_not_soft_deleted(subject: str) -> RegistryError:
    return RegistryError(404, 40405, f"Subject '{subject}' was not deleted first before being permanently deleted")


def version_soft_deleted(subject: str, version: object) -> RegistryError:
    message = f"Subject '{subject}' Version {version} was soft deleted.Set permanent=true to delete permanently"
    return RegistryError(404, 40406, message)


def version_not_soft_deleted(subject: str, version: object) -> RegistryError:
    message = f"Subject '{subject}' Version {version} was not deleted first before being permanently deleted"
    return RegistryError(404, 40407, message)


def no_subject_compatibility(subject: str) -> RegistryError:
    return RegistryError(404, 40408, f"Subject '{subject}' does not have subject-level compatibility configured")


def no_subject_mode(subject: str) -> RegistryError:
    return RegistryError(404, 40409, f"Subject '{subject}' does not have subject-level mode configured")


def incompatible(subject: str, details: str) -> RegistryError:
    return RegistryError(
        409,
        40901,
        f'Schema being registered is incompatible with an earlier schema for subject "{subject}", details: {details}',
    )


def invalid_schema(message: str) -> RegistryError:
    return RegistryError(422, 42201, message)


def invalid_version(text: str) -> RegistryError:
    return RegistryError(
        422,
        42202,
        f"The specified version '{text}' is not a valid version id. Allowed values are between [1, 2^31-1] and the "
        'string "latest"',
    )


def invalid_compatibility() -> RegistryError:
    return RegistryError(
        422,
        42203,
        "Invalid compatibility level. Valid values are none, backward, forward, full, backward_transitive, "
        "forward_transitive, and full_transitive",
    )


def invalid_policy(policy: str) -> RegistryError:
    return RegistryError(
        422, 42203, f"Invalid compatibility policy {policy}. Valid values are strict and lenient; logical is not there"
    )


def invalid_mode() -> RegistryError:
    return RegistryError(
        422, 42204, "Invalid mode. Valid values are READWRITE, READONLY, READONLY_OVERRIDE and IMPORT."
    )


def not_permitted(message: str) -> RegistryError:
    return RegistryError(422, 42205, message)


def reference_exists(subject: str, version: int) -> RegistryError:
    key = f"{{magic=1,keytype=SCHEMA,subject={subject},version={version}}}"
    return RegistryError(422, 42206, f"One or more references exist to the schema {key}.")


def invalid_subject(subject: str) -> RegistryError:
    return RegistryError(422, 42208, f"The specified subject '{subject}' is not a valid.")


def schema_too_large(message: str = "Register operation failed because schema is too large") -> RegistryError:
    return RegistryError(422, 42209, message)


def invalid_rules(message: str) -> RegistryError:
    return RegistryError(422, 42210, message)


def context_not_empty(context: str) -> RegistryError:
    return RegistryError(422, 42211, f"The specified context '{context}' is not empty.")


def store_failed(message: str) -> RegistryError:
    return RegistryError(500, 50001, message)


def timed_out(message: str) -> RegistryError:
    return RegistryError(500, 50002, message)


def forwarding_failed(message: str) -> RegistryError:
    return RegistryError(500, 50003, message)


def no_leader(message: str = "Leader not known.") -> RegistryError:
    return RegistryError(500, 50004, message)

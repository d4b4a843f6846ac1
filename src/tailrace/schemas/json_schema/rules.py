"""Confluent's names of the differences between two JSON Schemas: which are compatible, what each is told as, and what
would pass.

A difference is told from the writer's (earlier) schema to the reader's (later) one: MAXIMUM_ADDED means that the reader
has a limit that the writer did not have, so the reader may refuse what was written.
"""

from tailrace.schemas.parsed import Difference, names

COMPATIBLE = names(
    """
    ID_CHANGED DESCRIPTION_CHANGED TITLE_CHANGED DEFAULT_CHANGED SCHEMA_REMOVED TYPE_EXTENDED MAX_LENGTH_INCREASED
    MAX_LENGTH_REMOVED MIN_LENGTH_DECREASED MIN_LENGTH_REMOVED PATTERN_REMOVED MAXIMUM_INCREASED MAXIMUM_REMOVED
    MINIMUM_DECREASED MINIMUM_REMOVED EXCLUSIVE_MAXIMUM_INCREASED EXCLUSIVE_MAXIMUM_REMOVED
    EXCLUSIVE_MINIMUM_DECREASED EXCLUSIVE_MINIMUM_REMOVED MULTIPLE_OF_REDUCED MULTIPLE_OF_REMOVED
    REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED REQUIRED_ATTRIBUTE_REMOVED DEPENDENCY_ARRAY_NARROWED
    DEPENDENCY_ARRAY_REMOVED DEPENDENCY_SCHEMA_REMOVED MAX_PROPERTIES_INCREASED MAX_PROPERTIES_REMOVED
    MIN_PROPERTIES_DECREASED MIN_PROPERTIES_REMOVED ADDITIONAL_PROPERTIES_ADDED ADDITIONAL_PROPERTIES_EXTENDED
    UNEVALUATED_PROPERTIES_ADDED UNEVALUATED_PROPERTIES_EXTENDED
    PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL
    REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_UNOPEN_CONTENT_MODEL OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL
    PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL
    PROPERTY_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
    PROPERTY_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL MAX_ITEMS_INCREASED MAX_ITEMS_REMOVED
    MIN_ITEMS_DECREASED MIN_ITEMS_REMOVED MAX_CONTAINS_INCREASED MAX_CONTAINS_REMOVED MIN_CONTAINS_DECREASED
    MIN_CONTAINS_REMOVED UNIQUE_ITEMS_REMOVED ADDITIONAL_ITEMS_ADDED ADDITIONAL_ITEMS_EXTENDED UNEVALUATED_ITEMS_ADDED
    UNEVALUATED_ITEMS_EXTENDED ITEM_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL ITEM_ADDED_TO_CLOSED_CONTENT_MODEL
    ITEM_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL
    ITEM_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL ITEM_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
    ENUM_ARRAY_EXTENDED COMBINED_TYPE_EXTENDED PRODUCT_TYPE_NARROWED SUM_TYPE_EXTENDED NOT_TYPE_NARROWED
    """
)
# With the policy LENIENT: properties may come and go in any content model. Values that the reader refuses may be there
# all the same.
COMPATIBLE_IF_LENIENT = COMPATIBLE | names(
    """
    ADDITIONAL_PROPERTIES_NARROWED ADDITIONAL_PROPERTIES_REMOVED UNEVALUATED_PROPERTIES_NARROWED
    UNEVALUATED_PROPERTIES_REMOVED REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL
    OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL
    PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
    PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
    """
)

_MISSING = "at path '{path}' which is missing in the %s schema"
_PRESENT = "at path '{path}' in the %s schema"
_NOT_COVERED = "and is not covered by its partially open content model"

# Endings of names, the text with {path} for each, and what would pass: for the reader's author, for the writer's.
# The first that fits is taken, so exceptions stand before what they except.
_TOLD: tuple[tuple[tuple[str, ...], str, str, str], ...] = (
    (
        (
            "ADDITIONAL_ITEMS_REMOVED",
            "ADDITIONAL_PROPERTIES_REMOVED",
            "UNEVALUATED_ITEMS_REMOVED",
            "UNEVALUATED_PROPERTIES_REMOVED",
        ),
        "The keyword at path '{path}' in the %s schema is not present in the %s schema",
        "leave the content model open as it was: take the `false` away",
        "keep the content model closed, as readers of the old schema expect it",
    ),
    (
        (
            "PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL",
            "WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL",
            "ITEM_ADDED_TO_OPEN_CONTENT_MODEL",
        ),
        f"The %s schema has an open content model and has a property or item {_MISSING}",
        "allow anything for it, or close the content model (`additionalProperties: false`) in a version before",
        "keep it: the old schema says what it has to be, and the new one would allow anything",
    ),
    (
        ("REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL",),
        f"The %s schema has an unopen content model and has a required property {_MISSING}",
        "make it optional, or give it a default",
        "keep it: readers of the old schema require it",
    ),
    (
        ("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL", "ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL"),
        "The %s has a closed content model and is missing a property or item present at path '{path}' in the %s schema",
        "keep it, or open the content model",
        "leave it out: the old schema is closed and refuses what it does not name",
    ),
    (
        ("REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",),
        f"A property or item is missing in the %s schema but present {_PRESENT} {_NOT_COVERED}",
        "keep it, or let the schema of the rest allow it",
        "give it a type that the schema of the rest in the old schema allows",
    ),
    (
        ("ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",),
        f"The %s schema has a property or item {_MISSING} {_NOT_COVERED}",
        "let it allow everything that the schema of the rest allowed",
        "keep it, or restrict the schema of the rest to what the old schema says of it",
    ),
    (
        ("_NARROWED",),
        "An array or combined type at path '{path}' has fewer elements in the %s schema than the %s schema",
        "keep what was allowed before",
        "leave out what the old schema does not know",
    ),
    (
        ("DEPENDENCY_ARRAY_EXTENDED", "PRODUCT_TYPE_EXTENDED", "NOT_TYPE_EXTENDED"),
        "An array or combined type at path '{path}' has more elements in the %s schema than the %s schema",
        "demand no more than before",
        "keep what the old schema demands",
    ),
    (
        ("_ADDED",),
        "The keyword at path '{path}' in the %s schema is not present in the %s schema",
        "take the keyword away: what was written before may not obey it",
        "keep the keyword: readers of the old schema expect values that obey it",
    ),
    (
        ("_INCREASED", "MULTIPLE_OF_EXPANDED"),
        "The value at path '{path}' in the %s schema is more than its value in the %s schema",
        "keep the value, or make it smaller",
        "keep the value, or make it larger",
    ),
    (
        ("_DECREASED",),
        "The value at path '{path}' in the %s schema is less than its value in the %s schema",
        "keep the value, or make it larger",
        "keep the value, or make it smaller",
    ),
    (
        ("PATTERN_CHANGED", "MULTIPLE_OF_CHANGED", "DEPENDENCY_ARRAY_CHANGED"),
        "The value at path '{path}' is different between the %s and %s schema",
        "keep the value, or take the keyword away",
        "keep the value",
    ),
    (
        ("",),
        "A type at path '{path}' is different between the %s schema and the %s schema",
        "keep the type, or allow both with `anyOf`",
        "keep the type, or write something that the old schema allows",
    ),
)
# Told as a change of type, though its name says otherwise.
_AS_TYPE = ("TYPE_NARROWED",)


def told(rule: str, path: str) -> Difference:
    for endings, text, for_reader, for_writer in _TOLD:
        if rule.endswith(endings) and (rule not in _AS_TYPE or endings == ("",)):
            message = f'{{errorType:"{rule}", description:"{text.format(path=path)}\'}}'
            return Difference(rule, path, message, for_reader, for_writer)
    raise AssertionError(f"no text for {rule}")

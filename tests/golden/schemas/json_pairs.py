"""Changes of a JSON Schema by Confluent's published rules: each there and back, and in several places of a schema.

A row says: before, after, the rule of the change and whether it is compatible, and the same of the way back.
"""

YES, NO = True, False


def _limit(row):
    """A limit comes, goes, rises and falls; `lower` for one that bounds from below."""
    key, rule, kind, small, large, lower = row
    plain, less, more = {"type": kind}, {"type": kind, key: small}, {"type": kind, key: large}
    yield plain, less, (f"{rule}_ADDED", NO), (f"{rule}_REMOVED", YES), key
    yield less, more, (f"{rule}_INCREASED", not lower), (f"{rule}_DECREASED", lower), key


def changes():
    for row in (
        ("maxLength", "MAX_LENGTH", "string", 3, 5, False),
        ("minLength", "MIN_LENGTH", "string", 3, 5, True),
        ("maximum", "MAXIMUM", "number", 3, 5.5, False),
        ("minimum", "MINIMUM", "number", -3, 5, True),
        ("exclusiveMaximum", "EXCLUSIVE_MAXIMUM", "integer", 3, 5, False),
        ("exclusiveMinimum", "EXCLUSIVE_MINIMUM", "integer", 3, 5, True),
        ("maxItems", "MAX_ITEMS", "array", 3, 5, False),
        ("minItems", "MIN_ITEMS", "array", 3, 5, True),
        ("maxProperties", "MAX_PROPERTIES", "object", 3, 5, False),
        ("minProperties", "MIN_PROPERTIES", "object", 3, 5, True),
    ):
        yield from _limit(row)
    yield from _others()
    yield from _objects()
    yield from _arrays()
    yield from _combinations()


def _others():
    text, number = {"type": "string"}, {"type": "number"}
    yield text, {**text, "pattern": "a+"}, ("PATTERN_ADDED", NO), ("PATTERN_REMOVED", YES), "pattern"
    yield (
        {**text, "pattern": "a"},
        {**text, "pattern": "b"},
        ("PATTERN_CHANGED", NO),
        ("PATTERN_CHANGED", NO),
        "pattern",
    )
    yield number, {**number, "multipleOf": 2}, ("MULTIPLE_OF_ADDED", NO), ("MULTIPLE_OF_REMOVED", YES), "multipleOf"
    two, four, three = ({**number, "multipleOf": each} for each in (2, 4, 3))
    yield two, four, ("MULTIPLE_OF_EXPANDED", NO), ("MULTIPLE_OF_REDUCED", YES), "multipleOf"
    yield two, three, ("MULTIPLE_OF_CHANGED", NO), ("MULTIPLE_OF_CHANGED", NO), "multipleOf"
    tenth, three_tenths = ({**number, "multipleOf": each} for each in (0.1, 0.3))
    yield tenth, three_tenths, ("MULTIPLE_OF_EXPANDED", NO), ("MULTIPLE_OF_REDUCED", YES), "multipleOf"
    yield {"type": "integer"}, number, ("TYPE_EXTENDED", YES), ("TYPE_NARROWED", NO), ""
    for kind in ("string", "boolean", "null", "array", "object"):
        yield {"type": kind}, {"type": "number"}, ("TYPE_CHANGED", NO), ("TYPE_CHANGED", NO), ""
        yield {"type": kind}, {}, ("anything is allowed", YES), ("TYPE_CHANGED", NO), ""
        yield {"type": kind}, True, ("anything is allowed", YES), ("TYPE_CHANGED", NO), ""
        yield False, {"type": kind}, ("nothing was allowed", YES), ("TYPE_CHANGED", NO), ""
        yield (
            {"type": kind, "title": "a"},
            {"type": kind, "title": "b"},
            ("TITLE_CHANGED", YES),
            ("TITLE_CHANGED", YES),
            "",
        )
        described = {"type": kind, "description": "a"}
        yield {"type": kind}, described, ("DESCRIPTION_CHANGED", YES), ("DESCRIPTION_CHANGED", YES), ""
    yield {"enum": ["a"]}, {"enum": ["a", "b"]}, ("ENUM_ARRAY_EXTENDED", YES), ("ENUM_ARRAY_NARROWED", NO), "enum"
    yield {"enum": ["a", "c"]}, {"enum": ["a", "b"]}, ("ENUM_ARRAY_CHANGED", NO), ("ENUM_ARRAY_CHANGED", NO), "enum"
    yield {"enum": [1]}, {"enum": [True]}, ("ENUM_ARRAY_CHANGED", NO), ("ENUM_ARRAY_CHANGED", NO), "enum"
    yield {"const": 1}, {"const": 2}, ("ENUM_ARRAY_CHANGED", NO), ("ENUM_ARRAY_CHANGED", NO), "const"
    yield {"const": {"a": [1]}}, {"const": {"a": [1]}}, ("equal", YES), ("equal", YES), ""
    # Fewer things are forbidden: more is allowed.
    forbid_short, forbid_long = ({"not": {"type": "string", "maxLength": each}} for each in (3, 5))
    yield forbid_long, forbid_short, ("NOT_TYPE_NARROWED", YES), ("NOT_TYPE_EXTENDED", NO), "not"


def _objects():
    word = {"type": "string"}
    open_, closed = {"type": "object"}, {"type": "object", "additionalProperties": False}
    some = {"type": "object", "additionalProperties": word}
    by_pattern = {"type": "object", "patternProperties": {"^a": word}, "additionalProperties": False}
    gone = ("PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL", YES)
    model = "ADDED_TO_OPEN_CONTENT_MODEL"
    yield open_, {**open_, "properties": {"a": word}}, (f"OPTIONAL_PROPERTY_{model}", NO), gone, "properties/a"
    required = {"properties": {"a": word}, "required": ["a"]}
    yield open_, {**open_, **required}, (f"REQUIRED_PROPERTY_{model}", NO), gone, "properties/a"
    defaulted = {"properties": {"a": {**word, "default": ""}}, "required": ["a"]}
    yield open_, {**open_, **defaulted}, (f"REQUIRED_PROPERTY_WITH_DEFAULT_{model}", NO), gone, "properties/a"
    anything = {"properties": {"a": {}}}
    yield open_, {**open_, **anything}, (f"PROPERTY_WITH_EMPTY_SCHEMA_{model}", YES), gone, "properties/a"
    lost = ("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL", NO)
    unopen = "ADDED_TO_UNOPEN_CONTENT_MODEL"
    yield closed, {**closed, "properties": {"a": word}}, (f"OPTIONAL_PROPERTY_{unopen}", YES), lost, "properties/a"
    yield closed, {**closed, **required}, (f"REQUIRED_PROPERTY_{unopen}", NO), lost, "properties/a"
    yield closed, {**closed, **defaulted}, (f"REQUIRED_PROPERTY_WITH_DEFAULT_{unopen}", YES), lost, "properties/a"
    yield (
        {**closed, "properties": {"a": False}},
        closed,
        ("PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL", YES),
        (f"OPTIONAL_PROPERTY_{unopen}", YES),
        "properties/a",
    )
    for between in (some, by_pattern):
        covered = {**between, "properties": {"a": word}}
        yield between, covered, ("PROPERTY_ADDED_IS_COVERED", YES), ("PROPERTY_REMOVED_IS_COVERED", YES), "properties/a"
    a_open, a_required = {**open_, "properties": {"a": word}}, {**open_, **required}
    yield a_open, a_required, ("REQUIRED_ATTRIBUTE_ADDED", NO), ("REQUIRED_ATTRIBUTE_REMOVED", YES), "required/a"
    a_default = {**open_, **defaulted}
    yield (
        {**open_, "properties": defaulted["properties"]},
        a_default,
        ("REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED", YES),
        ("REQUIRED_ATTRIBUTE_REMOVED", YES),
        "required/a",
    )
    rest, rules = "additionalProperties", "ADDITIONAL_PROPERTIES"
    yield open_, closed, (f"{rules}_REMOVED", NO), (f"{rules}_ADDED", YES), rest
    yield open_, some, (f"{rules}_NARROWED", NO), (f"{rules}_EXTENDED", YES), rest
    needs = [{**open_, "dependencies": {"a": each}} for each in (["b"], ["b", "c"], ["d"])]
    yield open_, needs[0], ("DEPENDENCY_ARRAY_ADDED", NO), ("DEPENDENCY_ARRAY_REMOVED", YES), "dependencies/a"
    yield needs[0], needs[1], ("DEPENDENCY_ARRAY_EXTENDED", NO), ("DEPENDENCY_ARRAY_NARROWED", YES), "dependencies/a"
    yield needs[0], needs[2], ("DEPENDENCY_ARRAY_CHANGED", NO), ("DEPENDENCY_ARRAY_CHANGED", NO), "dependencies/a"
    schema = {**open_, "dependencies": {"a": word}}
    yield open_, schema, ("DEPENDENCY_SCHEMA_ADDED", NO), ("DEPENDENCY_SCHEMA_REMOVED", YES), "dependencies/a"


def _arrays():
    word = {"type": "string"}
    list_ = {"type": "array"}
    yield (
        list_,
        {**list_, "uniqueItems": True},
        ("UNIQUE_ITEMS_ADDED", NO),
        ("UNIQUE_ITEMS_REMOVED", YES),
        "uniqueItems",
    )
    yield list_, {**list_, "items": word}, ("SCHEMA_ADDED", NO), ("SCHEMA_REMOVED", YES), "items"
    one, two = {**list_, "items": [word]}, {**list_, "items": [word, word]}
    yield one, two, ("ITEM_ADDED_TO_OPEN_CONTENT_MODEL", NO), ("ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL", YES), "items/1"
    closed_one, closed_two = ({**each, "additionalItems": False} for each in (one, two))
    yield (
        closed_one,
        closed_two,
        ("ITEM_ADDED_TO_CLOSED_CONTENT_MODEL", YES),
        ("ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL", NO),
        "items/1",
    )
    some_one, some_two = ({**each, "additionalItems": word} for each in (one, two))
    yield some_one, some_two, ("ITEM_ADDED_IS_COVERED", YES), ("ITEM_REMOVED_IS_COVERED", YES), "items/1"
    yield one, closed_one, ("ADDITIONAL_ITEMS_REMOVED", NO), ("ADDITIONAL_ITEMS_ADDED", YES), "additionalItems"
    yield one, some_one, ("ADDITIONAL_ITEMS_NARROWED", NO), ("ADDITIONAL_ITEMS_EXTENDED", YES), "additionalItems"
    # Where one schema holds for all items there are no additional ones.
    every = {**list_, "items": word}
    closed_every = {**every, "additionalItems": False}
    yield every, closed_every, ("nothing is closed", YES), ("nothing was closed", YES), ""


def _combinations():
    word, number, flag = {"type": "string"}, {"type": "number"}, {"type": "boolean"}
    for key in ("anyOf", "oneOf"):
        two, three = {key: [word, number]}, {key: [word, number, flag]}
        yield two, three, ("SUM_TYPE_EXTENDED", YES), ("SUM_TYPE_NARROWED", NO), ""
        yield word, two, ("SUM_TYPE_EXTENDED", YES), ("TYPE_CHANGED", NO), ""
        other = {key: [word, flag]}
        yield two, other, ("COMBINED_TYPE_SUBSCHEMAS_CHANGED", NO), ("COMBINED_TYPE_SUBSCHEMAS_CHANGED", NO), ""
    short, matching = {"maxLength": 5, **word}, {"pattern": "a", **word}
    yield (
        {"allOf": [short]},
        {"allOf": [short, matching]},
        ("PRODUCT_TYPE_EXTENDED", NO),
        ("PRODUCT_TYPE_NARROWED", YES),
        "",
    )
    one_of, any_of, all_of = ({key: [word, number]} for key in ("oneOf", "anyOf", "allOf"))
    yield one_of, any_of, ("COMBINED_TYPE_EXTENDED", YES), ("COMBINED_TYPE_CHANGED", NO), ""
    yield all_of, any_of, ("COMBINED_TYPE_EXTENDED", YES), ("COMBINED_TYPE_CHANGED", NO), ""
    yield all_of, one_of, ("COMBINED_TYPE_CHANGED", NO), ("COMBINED_TYPE_CHANGED", NO), ""
    yield {"anyOf": [word]}, word, ("the only one", YES), ("the only one", YES), ""
    yield {"type": ["string", "null"]}, word, ("TYPE_CHANGED", NO), ("SUM_TYPE_EXTENDED", YES), ""


# Where a change may happen: a schema around it, and what its path begins with.
PLACES = {
    "at the root": (lambda schema: schema, ""),
    "in a property": (lambda schema: {"type": "object", "properties": {"p": schema}}, "properties/p"),
    "in the items": (lambda schema: {"type": "array", "items": schema}, "items"),
    "behind a reference": (
        lambda schema: {
            "type": "object",
            "properties": {"p": {"$ref": "#/definitions/d"}},
            "definitions": {"d": schema},
        },
        "properties/p",
    ),
    "in the rest": (
        lambda schema: {
            "type": "object",
            "additionalProperties": schema if isinstance(schema, dict) else {"allOf": [schema]},
        },
        "additionalProperties",
    ),
}


def pairs():
    """(name, original, update, rule, path, whether it is compatible)."""
    for before, after, there, back, key in changes():
        for place, (around, prefix) in PLACES.items():
            if place == "in the rest" and (isinstance(before, bool) or isinstance(after, bool)):
                continue
            path = "#/" + "/".join(each for each in (prefix, key) if each)
            yield f"{there[0]} {place}", around(before), around(after), there[0], path, there[1]
            yield f"{back[0]} {place}, back", around(after), around(before), back[0], path, back[1]

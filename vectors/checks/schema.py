"""The part of JSON Schema that the schemas of the vectors use."""
import re

ANNOTATIONS = {"$schema", "title", "description", "format"}
KEYWORDS = {
    "$defs", "$ref", "type", "required", "properties", "additionalProperties", "items",
    "prefixItems", "minItems", "maxItems", "pattern", "enum", "const", "anyOf", "oneOf", "minimum",
    "maximum"
}
TYPES = {
    "object": lambda x: isinstance(x, dict),
    "array": lambda x: isinstance(x, list),
    "string": lambda x: isinstance(x, str),
    "integer": lambda x: isinstance(x, int) and not isinstance(x, bool),
    "number": lambda x: isinstance(x, (int, float)) and not isinstance(x, bool),
    "boolean": lambda x: isinstance(x, bool),
    "null": lambda x: x is None,
}


def unknown(schema):
    """The unknown keywords of a schema."""
    if isinstance(schema, bool):
        return set()
    out = set(schema) - ANNOTATIONS - KEYWORDS
    for key in ("$defs", "properties"):
        out = out.union(*(unknown(part) for part in schema.get(key, {}).values()))
    for key in ("anyOf", "oneOf", "prefixItems"):
        out = out.union(*(unknown(part) for part in schema.get(key, [])))
    for key in ("items", "additionalProperties"):
        out |= unknown(schema.get(key, True))
    return out


def equal(a, b):
    """Equality in which True is not 1."""
    return type(a) is type(b) and a == b


class Validator:
    def __init__(self, schema):
        if foreign := unknown(schema):
            raise ValueError(f"keywords that are not known: {', '.join(sorted(foreign))}")
        self.root = schema

    def resolve(self, reference):
        if not reference.startswith("#/"):
            raise ValueError(f"a reference elsewhere: {reference}")
        out = self.root
        for step in reference[2:].split("/"):
            out = out[step]
        return out

    def errors(self, value, schema=None, path="$"):
        """The errors of a value, as text."""
        schema = self.root if schema is None else schema
        if schema is True:
            return
        if schema is False:
            yield f"{path} must not be"
            return
        if "$ref" in schema:
            yield from self.errors(value, self.resolve(schema["$ref"]), path)
        types = schema.get("type", list(TYPES))
        types = types if isinstance(types, list) else [types]
        if not any(TYPES[name](value) for name in types):
            yield f"{path} is not of type {' or '.join(types)}"
            return
        if "const" in schema and not equal(value, schema["const"]):
            yield f"{path} is not {schema['const']}"
        if "enum" in schema and not any(equal(value, one) for one in schema["enum"]):
            yield f"{path} is none of {schema['enum']}"
        for key, fits in (("anyOf", lambda n: n > 0), ("oneOf", lambda n: n == 1)):
            if key in schema:
                count = sum(not any(self.errors(value, part, path)) for part in schema[key])
                if not fits(count):
                    yield f"{path} fits {count} of {key}"
        if isinstance(value, dict):
            yield from self.object(value, schema, path)
        elif isinstance(value, list):
            yield from self.array(value, schema, path)
        elif isinstance(value, str):
            if "pattern" in schema and not re.search(schema["pattern"], value):
                yield f"{path} does not fit {schema['pattern']}"
        elif TYPES["number"](value):
            if value < schema.get("minimum", value) or value > schema.get("maximum", value):
                yield f"{path} is out of range"

    def object(self, value, schema, path):
        properties = schema.get("properties", {})
        for name in schema.get("required", []):
            if name not in value:
                yield f"{path}.{name} is missing"
        for name, part in value.items():
            rule = properties.get(name, schema.get("additionalProperties", True))
            yield from self.errors(part, rule, f"{path}.{name}")

    def array(self, value, schema, path):
        least, most = schema.get("minItems", 0), schema.get("maxItems", len(value))
        if not least <= len(value) <= most:
            yield f"{path} has {len(value)} items"
        first = schema.get("prefixItems", [])
        for i, part in enumerate(value):
            rule = first[i] if i < len(first) else schema.get("items", True)
            yield from self.errors(part, rule, f"{path}[{i}]")

"""Takes a valid request and makes one thing in it extreme: a number, a text, a list, a depth, a chain, a grammar.

The fields of each path come from `hocket docs fields`, a table made by the server's own parsers. Each draw is a number:
the same seed and number give the same request.
"""

import json
import random
import subprocess

import colliding
from server import BINARY

BODY_BYTES = 31 << 20  # below --max-body-bytes
HERE = "@@here@@"  # a placeholder for the grown value, until the body is text
SIZES = (1_000, 30_000, 1_000_000, BODY_BYTES)

NUMBERS = ["0", "-1", "1", "0.5", "1e308", "-1e308", "1e-45", "5e-324", "-0.0", "1e400", "NaN", "Infinity", "-Infinity"]
NUMBERS += ["2147483647", "2147483648", "-2147483649", "9007199254740993", "9223372036854775807", "9223372036854775808"]
NUMBERS += ["18446744073709551616", "1" * 5000, "0." + "1" * 5000, "4294967295", "1e5", "64", "1024", "1025"]
# Pieces that are repeated to a long text.
PIECES = ["a", " ", "\n", "1", "é", "😀", "\0", '"', "\\", "{", "[", "<", "<|im_end|>", "<|im_start|>user\n", "</think>"]
PIECES += ["(a|a)*", "[a-z]{1000}", "a?", "\\s+$", "%s", "{{ x }}", "data: [DONE]\n\n", "<tool_call>", "a b ", "\u0301", "A1-_."]
ELEMENTS = ["1", '"a"', "{}", "[]", "null", "true", '{"type":"text","text":"a"}', '{"function":{}}', "[1]", '["a"]']
SCHEMA_NUMBERS = [2, 7919, 99_991, 999_983, 4_999_999, 99_999_989, 1e-300, 1e300, 2**31, 2**63]


def repeated(element, size):
    """A list of as many as fit."""
    return "[" + ",".join([element] * max(1, size // (len(element) + 1))) + "]"


def keys(value, size):
    count = max(1, size // (len(value) + 12))
    return "{" + ",".join(f'"k{i}":{value}' for i in range(count)) + "}"


def more_keys(there, value, size):
    """An object with all that it had, which stays valid, and many keys besides."""
    more = keys(value, size)
    return json.dumps(there)[:-1] + ("," if there else "") + more[1:]


def collided(there, value, size):
    """The same with keys of one hash: at most 40,000, as many as cost minutes where each is compared with all before it."""
    names = colliding.keys(max(1, min(40_000, size // 300)))
    more = ",".join(f'"{name}":{value}' for name in names)
    return json.dumps(there)[:-1] + ("," if there else "") + more + "}"


def told_json(rng, value, size):
    """A text that is JSON itself, as the arguments of a call are."""
    size //= 2  # its quotes are escaped
    numbers = "1" if rng.random() < 0.5 else value
    made = rng.choice((lambda: keys(value, size), lambda: repeated(numbers, size), lambda: collided({}, value, size), lambda: nested(rng, size)))()
    return json.dumps(made, ensure_ascii=False)


def nested(rng, size):
    depth = rng.choice((30, 58, 63, 64, 65, 1000, 100_000, size // 2))
    opening, closing = rng.choice((("[", "]"), ('{"a":', "}"), ('[{"type":"object","items":', "}]")))
    depth = min(depth, BODY_BYTES // len(opening + closing))
    return opening * depth + "1" + closing * depth


# --- grammars ---------------------------------------------------------------------------------------

def ref_chain(count):
    defs = {f"a{i}": {"$ref": f"#/$defs/a{i + 1}"} for i in range(count)} | {f"a{count}": {"type": "string"}}
    return {"$ref": "#/$defs/a0", "$defs": defs}


def wrapped(keyword, depth, inner):
    for _ in range(min(depth, 55)):
        inner = {keyword: [inner] if keyword in ("allOf", "anyOf", "oneOf", "prefixItems") else inner}
    return inner


def schema(rng, size):
    n = max(1, size // 40)
    few = min(n, 20_000)
    word = rng.choice(("a", "<|im_end|>", '"', "\\", "😀"))
    text = {"type": "string"}
    return rng.choice((
        lambda: ref_chain(few),
        lambda: {"$ref": "#", "$defs": {"a": {"$ref": "#/$defs/a"}}},
        lambda: {"type": rng.choice(("integer", "number")), "multipleOf": rng.choice(SCHEMA_NUMBERS)},
        lambda: {"type": "integer", "minimum": -rng.choice(SCHEMA_NUMBERS), "maximum": rng.choice(SCHEMA_NUMBERS)},
        lambda: {"type": "object", "properties": {f"p{i}": text for i in range(few)}},
        lambda: {"type": "object", "properties": {f"p{i}": text for i in range(few)}, "required": [f"p{i}" for i in range(few)]},
        lambda: {"type": "object", "patternProperties": {f"^p{i}.*$": text for i in range(min(n, 2000))}},
        lambda: {"enum": [f"{word}{i}" for i in range(few)]},
        lambda: {"const": word * n},
        lambda: {rng.choice(("anyOf", "oneOf", "allOf")): [{"const": i} for i in range(few)]},
        lambda: {"allOf": [{"type": "integer", "multipleOf": p} for p in (7, 11, 13, 9973, 7919)[: rng.randint(1, 5)]]},
        lambda: wrapped(rng.choice(("allOf", "anyOf", "oneOf", "items", "not", "additionalProperties", "prefixItems")), n, text),
        lambda: {"type": "string", rng.choice(("minLength", "maxLength")): rng.choice(SCHEMA_NUMBERS)},
        lambda: {"type": "array", rng.choice(("minItems", "maxItems")): rng.choice(SCHEMA_NUMBERS)},
        lambda: {"type": "array", "prefixItems": [text] * few},
        lambda: {"type": "string", "pattern": regex(rng, min(size, 900_000))},
        lambda: {"type": "string", "format": rng.choice(("date-time", "uuid", "email", "ipv6", "none such" * min(n, 1000)))},
    ))()


def regex(rng, size):
    n = max(1, size // 4)
    return rng.choice((
        lambda: "(a{1000}){1000}",
        lambda: "((a{100}){100}){100}",
        lambda: "(" * n + "a" + ")" * n,
        lambda: "(" * min(n, 200) + "a" + ")*" * min(n, 200),
        lambda: "a?" * n + "a" * n,
        lambda: "|".join(f"a{i}" for i in range(min(n, 100_000))),
        lambda: ".*a.{" + str(min(n, 900)) + "}",
        lambda: "\\p{L}{" + str(rng.choice((10, 500, 100_000))) + "}",
        lambda: "[^a]{0,4294967295}",
        lambda: "(?i)" + "ß" * n,
        lambda: "<\\|im_end\\|>",
        lambda: "(a|b)*a" + "(a|b)" * min(n, 30),
        lambda: "[" + "a-z" * n + "]",
    ))()


def ebnf(rng, size):
    n = max(1, size // 12)
    return rng.choice((
        lambda: 'root ::= "a"' + rng.choice("+*?") * size,
        lambda: 'root ::= "a"' + "{2}" * n,
        lambda: 'root ::= "a"{1000}{1000}{1000}',
        lambda: 'root ::= "a"{0,4294967296}',
        lambda: "root ::= " + "(" * n + '"a"' + ")" * n,
        lambda: "root ::= a0\n" + "".join(f"a{i} ::= a{i + 1}\n" for i in range(n)) + f'a{n} ::= "x"\n',
        lambda: "root ::= " + " | ".join(['"a"'] * n),
        lambda: "root ::= " + " ".join(['"a"?'] * n),
        lambda: "root ::= root root | root",
        lambda: "root ::= [" + "a-z" * n + "]",
        lambda: "root ::= " + '"<|im_end|>" ' * n,
        lambda: "#" * size + '\nroot ::= "a"',
    ))()


def lark(rng, size):
    n = max(1, size // 12)
    return rng.choice((
        lambda: "start: a0\n" + "".join(f"a{i}: a{i + 1}\n" for i in range(n)) + f'a{n}: "x"\n',
        lambda: "start: A0\n" + "".join(f"A{i}: A{i + 1}\n" for i in range(n)) + f'A{n}: "x"\n',
        lambda: "start: " + "(" * n + '"a"' + ")" * n,
        lambda: 'start: "a"' + "+" * n,
        lambda: 'start: "a"~1..1000000000',
        lambda: "start: start start |",
        lambda: "start: " + " | ".join(f'"a{i}"' for i in range(n)),
        lambda: "start: %json " + json.dumps(schema(rng, min(size, 100_000))),
        lambda: "start: /" + regex(rng, min(size, 100_000)) + "/",
        lambda: "start: <|im_end|>",
    ))()


def structural_tag(rng, size):
    n = max(1, size // 60)
    tag = {"begin": "<f>", "schema": {"type": "object"}, "end": "</f>"}
    return rng.choice((
        lambda: '{"triggers":' + "[" * size + "]" * size + "}",
        lambda: json.dumps({"type": "structural_tag", "triggers": ["<f"], "structures": [tag] * n}),
        lambda: json.dumps({"type": "structural_tag", "triggers": [f"<{i}" for i in range(n)], "structures": [tag]}),
        lambda: json.dumps({"type": "structural_tag", "triggers": ["<f"], "structures": [tag | {"schema": schema(rng, min(size, 100_000))}]}),
        lambda: json.dumps({"type": "structural_tag", "format": {"type": "sequence", "elements": [{"type": "any_text"}] * n}}),
        lambda: '{"format":' + '{"type":"sequence","elements":[' * n + "]}" * n + "}",
    ))()


def grammar(rng, size):
    """As JSON: a schema as an object, or any grammar as a text."""
    size = min(size, 4 << 20)
    made = rng.choice((schema, schema, regex, ebnf, lark, structural_tag))(rng, size)
    if isinstance(made, str):
        return json.dumps(made)
    return json.dumps(made) if rng.random() < 0.6 else json.dumps(json.dumps(made))


# --- draws ------------------------------------------------------------------------------------------

def table():
    made = subprocess.run([BINARY, "docs", "fields"], capture_output=True, check=True, timeout=60)
    return json.loads(made.stdout)


def places(value, path=()):
    """The paths of all values inside an example."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        yield from places(one, path + (key,))


def place_of(field):
    """"tools[].function.name" as keys; a list has one element."""
    path = []
    for name in field.split("."):
        path.append(name.removesuffix("[]"))
        if name.endswith("[]"):
            path.append(0)
    return tuple(path)


def value_at(body, path):
    for key in path:
        try:
            body = body[key]
        except (KeyError, IndexError, TypeError):
            return None
    return body


def put(body, path, value):
    """`body` with `value` there; missing objects on the way are made."""
    if not path:
        return value
    key, inner = path[0], None
    if isinstance(key, int):
        body = list(body) if isinstance(body, list) and body else [{}]
        inner = body[key]
    else:
        body = dict(body) if isinstance(body, dict) else {}
        inner = body.get(key)
    body[key] = put(inner, path[1:], value)
    return body


def grown(rng, there, kind):
    """The name of an attack, and the JSON text that replaces the value."""
    size = rng.choice(SIZES)
    piece = rng.choice(PIECES)
    element = json.dumps(rng.choice(there)) if isinstance(there, list) and there else rng.choice(ELEMENTS)
    ways = {
        "number": lambda: rng.choice(NUMBERS),
        "numbers": lambda: repeated(rng.choice(NUMBERS), size),
        "text": lambda: json.dumps(piece * max(1, size // max(2, len(json.dumps(piece)))), ensure_ascii=False),
        "texts": lambda: repeated(json.dumps(piece * rng.choice((1, 100, 1000))), size),
        "list": lambda: repeated(element, size),
        "copies": lambda: repeated(json.dumps(there), size),
        "keys": lambda: keys(element, size),
        "more keys": lambda: more_keys(there if isinstance(there, dict) else {}, element, size),
        "keys of one hash": lambda: collided(there if isinstance(there, dict) else {}, element, size),
        "JSON in a text": lambda: told_json(rng, element, size),
        "depth": lambda: nested(rng, size),
        "grammar": lambda: grammar(rng, size),
        "unclosed": lambda: '"' + piece.strip('"\\\n\0') * 1000 if rng.random() < 0.5 else "1" * size,
    }
    weights = dict.fromkeys(ways, 1)
    texts = ("text", "grammar", "JSON in a text")
    for way in {"integer": ("number",), "number": ("number",), "list": ("list", "texts"), "string": texts}.get(kind, ()):
        weights[way] += 4
    if kind in ("any", "object"):
        weights["grammar"] += 5
    if isinstance(there, dict):
        weights["more keys"] += 3
        weights["keys of one hash"] += 3
    if isinstance(there, str) and there.startswith(("{", "[")):
        weights["JSON in a text"] += 8
    way = rng.choices(list(weights), list(weights.values()))[0]
    return way, ways[way]()


def draw(known, seed, number):
    """The path, what was done, and the body, as bytes."""
    rng = random.Random(f"{seed}:{number}")
    one = rng.choice(known)
    example = rng.choice(one["examples"])
    inside = [(path, "any" if isinstance(value_at(example, path), (dict, list)) else "") for path in places(example)]
    fields = [(place_of(name), what["kind"]) for name, what in one["fields"].items()]
    path, kind = rng.choice(inside if rng.random() < 0.3 or not fields else fields)
    way, text = grown(rng, value_at(example, path), kind)
    body = json.dumps(put(example, path, HERE)).replace(json.dumps(HERE), text, 1)
    name = ".".join(map(str, path)) or "the body"
    return one["path"], f"{one['path']} {name}: {way}, {len(body)} bytes", body.encode(errors="replace")[: BODY_BYTES + (1 << 20)]

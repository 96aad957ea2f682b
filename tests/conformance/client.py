"""What the kit's checks are made of: a byte-level client beside the SDKs, outcomes, and sample requests."""

from __future__ import annotations

import http.client
import json
import re
import urllib.parse

import anthropic
import openai
import pydantic


class Raw:
    def __init__(self, root, key, timeout):
        u = urllib.parse.urlsplit(root)
        self.host, self.port, self.tls = u.hostname, u.port, u.scheme == "https"
        self.prefix, self.key, self.timeout = u.path.rstrip("/"), key, timeout

    def conn(self):
        c = http.client.HTTPSConnection if self.tls else http.client.HTTPConnection
        return c(self.host, self.port, timeout=self.timeout)

    def headers(self, dialect, key=None, extra=None):
        k = self.key if key is None else key
        h = {"content-type": "application/json"}
        if dialect == "anthropic":
            h |= {"x-api-key": k, "anthropic-version": "2023-06-01"}
        else:
            h |= {"authorization": f"Bearer {k}"}
        return h | (extra or {})

    def call(self, method, path, body=None, dialect="openai", key=None, extra=None):
        c = self.conn()
        data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        c.request(method, self.prefix + path, body=data, headers=self.headers(dialect, key, extra))
        r = c.getresponse()
        raw = r.read()
        c.close()
        try:
            js = json.loads(raw) if raw else None
        except ValueError:
            js = None
        return r.status, {k.lower(): v for k, v in r.getheaders()}, js, raw

    def sse(self, path, body, dialect="openai", extra=None):
        """-> (status, headers, [(event, data_str)], comments, json_body_if_error)"""
        c = self.conn()
        c.request(
            "POST", self.prefix + path, body=json.dumps(body).encode(), headers=self.headers(dialect, None, extra)
        )
        r = c.getresponse()
        hdr = {k.lower(): v for k, v in r.getheaders()}
        if r.status != 200:
            raw = r.read()
            c.close()
            try:
                return r.status, hdr, [], 0, json.loads(raw)
            except ValueError:
                return r.status, hdr, [], 0, {"raw": raw[:200].decode("utf-8", "replace")}
        raw = r.read()
        c.close()
        events, comments, name, data = [], 0, None, []
        text = raw.decode("utf-8")  # must be valid UTF-8 as a whole
        for line in re.split(r"\r\n|\n|\r", text):
            if line == "":
                if data:
                    events.append((name, "\n".join(data)))
                name, data = None, []
            elif line.startswith(":"):
                comments += 1
            elif line.startswith("event:"):
                name = line[6:].strip()
            elif line.startswith("data:"):
                data.append(line[5:].removeprefix(" "))
        if data:
            events.append((name, "\n".join(data)))
        return r.status, hdr, events, comments, None


def split_done(events):
    done = any(d.strip() == "[DONE]" for _, d in events)
    return [(n, json.loads(d)) for n, d in events if d.strip() != "[DONE]"], done


# --------------------------------------------------------------------------------------------- runner


class Fail(Exception):  # noqa: N818 - an outcome
    """The check failed."""


class Skip(Exception):  # noqa: N818 - an outcome
    """The check cannot tell, or the feature is not offered."""


class Checks:
    """The checks of one dialect by name, in order."""

    def __init__(self):
        self.all = []

    def __call__(self, name):
        def register(f):
            self.all.append((name, f))
            return f

        return register


def need(cond, msg):
    if not cond:
        raise Fail(msg)


def none_wrong(errs):
    if errs:
        raise Fail("; ".join(errs[:4]) + (f" (+{len(errs) - 4} more)" if len(errs) > 4 else ""))


def weak(cond, msg):
    if not cond:
        raise Skip("weak model: " + msg)


class Ctx:
    def __init__(self, a):
        root = a.base_url.rstrip("/")
        root = root.removesuffix("/v1")
        self.root, self.key, self.model, self.a = root, a.api_key, a.model, a
        self.raw = Raw(root, a.api_key, a.timeout)
        self.o = openai.OpenAI(base_url=root + "/v1", api_key=a.api_key, max_retries=0, timeout=a.timeout)
        self.an = anthropic.Anthropic(base_url=root, api_key=a.api_key, max_retries=0, timeout=a.timeout)
        self.mt = a.max_tokens
        self.notes = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.o.close()
        self.an.close()

    def note(self, s):
        self.notes.append(s)


PNG = "iVBORw0KGgoAAAANSUhEUgAAABAAAAAQCAIAAACQkWg2AAAAGUlEQVR42mP4z8BAEiJN9aiGUQ2jGgZMAwAqff4BOn1u4QAAAABJRU5ErkJggg=="
WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 12}},  # so that a forced call ends on any model
    "required": ["city"],
    "additionalProperties": False,
}
FN_CHAT = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather of a city. Use it whenever weather is asked.",
        "parameters": WEATHER,
        "strict": True,  # engines constrain the arguments of forced calls only then
    },
}
FN_RESP = {
    "type": "function",
    "name": "get_weather",
    "description": "Get the weather of a city. Use it whenever weather is asked.",
    "parameters": WEATHER,
    "strict": True,
}
FN_ANT = {
    "name": "get_weather",
    "description": "Get the weather of a city. Use it whenever weather is asked.",
    "input_schema": WEATHER,
    "strict": True,
}
ASK = "What is the weather in Paris? Call get_weather."
ASK2 = "What is the weather in two cities? Call get_weather for Paris and call get_weather for Rome, both at once."
SCHEMA = {
    "type": "object",
    "properties": {"answer": {"type": "string"}, "score": {"type": "integer"}},
    "required": ["answer", "score"],
    "additionalProperties": False,
}


class Answer(pydantic.BaseModel):
    answer: str
    score: int


def refused(f, allow=(400, 404, 422, 501)):
    """Run f; a clean typed 4xx refusal becomes a Skip with the reason (feature not offered)."""
    try:
        return f()
    except (openai.APIStatusError, anthropic.APIStatusError) as e:
        if e.status_code in allow:
            raise Skip(f"refused with {e.status_code}: {str(e)[:110]}") from None
        raise


def raw_text(r):
    return r.text() if callable(r.text) else r.text


def dump(o):
    return json.loads(o.model_dump_json())

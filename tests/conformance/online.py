"""The translation vectors over sockets: this process plays the engine, a running gateway is driven.

    python -m tests.conformance.online GATEWAY_URL API_KEY MODEL ENGINE_PORT [FILE.jsonl] [--only=ID,ID]

Configure the gateway with that engine only (127.0.0.1:ENGINE_PORT, model "glm"), retries allowed but no second replica.
Some vectors are engine failures by design: switch the breaker off for the run, or pass --pause=SECONDS.
"""

from __future__ import annotations

import http.client
import json
import re
import sys
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.conformance.assertions import check_stream, jl, test
from tests.conformance.client import split_done

CUR = {"v": None, "calls": []}


class Backend(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *a):
        pass

    def j(self, status, obj, headers=None):
        b = json.dumps(obj).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(b)))
        for k, val in (headers or {}).items():
            self.send_header(k, val)
        self.end_headers()
        self.wfile.write(b)

    def do_GET(self):
        if self.path.startswith("/v1/models"):
            return self.j(
                200,
                {
                    "object": "list",
                    "data": [{"id": "glm", "object": "model", "created": 1, "owned_by": "x", "max_model_len": 1048576}],
                },
            )
        if self.path in ("/health", "/v1/health/ready", "/ping", "/ready"):
            return self.j(200, {"status": "ready"})
        return self.j(404, {"detail": "Not Found"})

    def do_POST(self):
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        body, v = jl(raw.decode()), CUR["v"]
        if v is None:
            return self.j(503, {"error": {"message": "idle", "type": "x", "param": None, "code": 503}})
        CUR["calls"].append((self.path, body))
        if self.path.split("?")[0] in ("/tokenize", "/v1/tokenize", "/v1/messages/count_tokens"):
            return self.j(200, {"tokens": list(range(33)), "count": 33, "input_tokens": 33, "max_model_len": 1048576})
        tr = v.get("transport") or {}
        if "upstream_sse" not in v:
            u = v.get("upstream_response")
            if u is None:
                return self.j(
                    500,
                    {
                        "error": {
                            "message": "the gateway should not have called",
                            "type": "x",
                            "param": None,
                            "code": 500,
                        }
                    },
                )
            return self.j(u["status"], u["json"], u.get("headers"))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        nl = "\r\n" if tr.get("crlf") else "\n"
        out = "\ufeff" if tr.get("bom") else ""
        for c in v["upstream_sse"]:
            if tr.get("comments"):
                out += ": ping" + nl + nl
            text = c if isinstance(c, str) else json.dumps(c, ensure_ascii=not (tr.get("split_every")))
            sp = "" if tr.get("no_space") else " "
            if tr.get("crlf") and not isinstance(c, str):
                text = text.replace(', "created"', "," + nl + "data:" + sp + '"created"', 1)
            out += "data:" + sp + text + nl + nl
        data, step = out.encode("utf-8", "surrogatepass"), tr.get("split_every") or 4096
        try:
            for i in range(0, len(data), step):
                p = data[i : i + step]
                self.wfile.write(b"%x\r\n%s\r\n" % (len(p), p))
                self.wfile.flush()
            if tr.get("cut"):
                time.sleep(0.2)
                self.close_connection = True
                self.connection.close()
                return None
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            pass


def online(v, host, port, prefix, key, model):
    CUR["v"], CUR["calls"] = v, []
    body = json.loads(json.dumps(v["request"]["body"]).replace('"MODEL"', json.dumps(model)))
    hd = {"content-type": "application/json", "x-vector": v["id"]} | v["request"].get("headers", {})
    hd |= (
        {"x-api-key": key, "anthropic-version": "2023-06-01"}
        if v["dialect_in"] == "messages"
        else {"authorization": "Bearer " + key}
    )
    c = http.client.HTTPConnection(host, port, timeout=30)
    c.request("POST", prefix + v["request"]["path"], json.dumps(body).encode(), hd)
    r = c.getresponse()
    raw = b""
    try:
        raw = r.read()
    except http.client.IncompleteRead as e:
        raw = e.partial
    c.close()
    x, e = v["expect"], []
    want = x.get("status_in") or [x["status"]]
    if r.status not in want:
        return [f"status {r.status}, want {want}: {raw[:160]!r}"]
    if r.status == 404 and "status_in" in x:
        return []
    h = {k.lower(): val for k, val in r.getheaders()}
    for name, op, val in x.get("headers", []):
        t = test({"h": h[name]} if name in h else {}, ["h", op, val])
        if t:
            e.append(f"header {name}: {t}")
    up = x.get("upstream") or {}
    posts = [b for p, b in CUR["calls"] if "tokenize" not in p]
    if "calls" in up and len(posts) != up["calls"]:
        e.append(f"{len(posts)} upstream calls, want {up['calls']}")
    for a in up.get("body", []):
        t = test(posts[-1], a) if posts else "no upstream call"
        if t:
            e.append("upstream " + t)
    if "stream" in x:
        text = raw.decode("utf-8")
        ev, name, data = [], None, []
        for line in re.split(r"\r\n|\n|\r", text):
            if line == "":
                if data:
                    ev.append((name, "\n".join(data)))
                name, data = None, []
            elif line.startswith("event:"):
                name = line[6:].strip()
            elif line.startswith("data:"):
                data.append(line[5:].removeprefix(" "))
        ev, done = split_done(ev)
        if not ev:
            return e + ["empty stream"]
        e += check_stream(v, ev, done, (body.get("stream_options") or {}).get("include_usage") or False)
    for a in x.get("body", []):
        t = test(jl(raw.decode()), a)
        if t:
            e.append(t)
    return e


def main():
    args = [a for a in sys.argv[1:] if a != "--lenient" and not a.startswith(("--only=", "--settle=", "--pause="))]
    only = next((a.split("=", 1)[1].split(",") for a in sys.argv if a.startswith("--only=")), None)
    vs = [json.loads(x) for x in open(args[-1])]
    if only:
        vs = [v for v in vs if v["id"].split("-")[0] in only or v["id"] in only]
    u = urllib.parse.urlsplit(args[0])
    srv = ThreadingHTTPServer(("127.0.0.1", int(args[3])), Backend)
    threading.Thread(target=srv.serve_forever, daemon=True).start()
    time.sleep(float(next((a.split("=")[1] for a in sys.argv if a.startswith("--settle=")), 3)))
    n = {"PASS": 0, "FAIL": 0, "SKIP": 0}
    for v in vs:
        try:
            e = online(v, u.hostname, u.port, u.path.rstrip("/").removesuffix("/v1"), args[1], args[2])
        except Exception as ex:  # noqa: BLE001
            e = [f"{type(ex).__name__}: {ex}"]
        if e and "--lenient" in sys.argv:
            e = [x for x in e if not FORGIVE.search(x)]
        if (
            (v.get("transport") or {}).get("cut")
            or (v.get("upstream_response") or {}).get("status", 200) >= 500
            or any("error" in c for c in v.get("upstream_sse") or [] if isinstance(c, dict))
        ):
            time.sleep(float(next((a.split("=")[1] for a in sys.argv if a.startswith("--pause=")), 0)))
        st = "SKIP" if e is None else "FAIL" if e else "PASS"
        n[st] += 1
        print(f"{st}  {v['id']:34} {'; '.join(e or [])[:260]}")
    print(f"{n['PASS']} passed, {n['FAIL']} failed, {n['SKIP']} skipped")
    sys.exit(1 if n["FAIL"] else 0)


if __name__ == "__main__":
    main()

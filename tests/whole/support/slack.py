#!/usr/bin/env python3
"""Stands in for Slack, for ntfy and for whoever takes a webhook, on loopback.

Each request becomes one line of JSON in FILE: `at` (seconds), `path`, `status`, `answer`, `body`. The port is printed
once it listens.

/api/chat.postMessage, chat.update, conversations.history and .replies speak the Web API: a token, a channel that exists, a
message that is known, and at most one message a second in a channel with bursts of --burst; beyond that 429 with
Retry-After. /services/... is
an incoming webhook: `ok`, or `invalid_payload`. All other paths take anything.

POST /script gives answers for the next requests whose path begins with `path`, oldest first:
{"path": "/api", "answers": [{"status": 503}, {"status": 429, "retry_after": 1}, {"error": "channel_not_found"}]}
{"take": true} takes the request as it should and never answers it. An answer with "forever": true stays; {"path": …, "answers": []} takes back what was given.
"""

import argparse
import json
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LOCK = threading.Lock()
SCRIPT = {}
MESSAGES = {}
SENT = {}
TOKEN = "xoxb-test"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *args):
        pass

    def do_GET(self):
        self.take("")

    def do_POST(self):
        self.take(self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode())

    def take(self, body):
        at = time.time()
        if self.path == "/script":
            asked = json.loads(body)
            with LOCK:
                SCRIPT[asked["path"]] = asked["answers"]
            return self.reply(200, {}, "ok")
        with LOCK:
            given = scripted(self.path)
            status, headers, answer = given if given and given != "take" else answer_to(self.path, self.headers, body)
            line = {"at": at, "path": self.path, "status": status, "answer": answer, "body": body}
            self.server.file.write(json.dumps(line) + "\n")
            self.server.file.flush()
        if given == "take":
            time.sleep(3600)
        self.reply(status, headers, answer)

    def reply(self, status, headers, answer):
        data = answer.encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def scripted(path):
    for prefix, answers in SCRIPT.items():
        if path.startswith(prefix) and answers:
            given = answers[0] if answers[0].get("forever") else answers.pop(0)
            headers = {"Retry-After": str(given["retry_after"])} if "retry_after" in given else {}
            if "take" in given:
                return "take"
            if "error" in given:
                return 200, headers, json.dumps({"ok": False, "error": given["error"]})
            return given["status"], headers, given.get("body", "")
    return None


def answer_to(path, headers, body):
    if path.startswith("/api/"):
        return web_api(path, headers, body)
    if path.startswith("/services/"):
        try:
            return (200, {}, "ok") if json.loads(body).get("text") else (400, {}, "no_text")
        except ValueError:
            return 400, {}, "invalid_payload"
    return 200, {}, "ok"


def web_api(path, headers, body):
    def no(error):
        return 200, {}, json.dumps({"ok": False, "error": error})

    if headers.get("Authorization") != f"Bearer {TOKEN}":
        return no("invalid_auth")
    if path.startswith("/api/conversations."):
        return told_before(path, dict(urllib.parse.parse_qsl(body)), no)
    try:
        asked = json.loads(body)
    except ValueError:
        return no("invalid_json")
    if len(asked.get("blocks", [])) > 50:
        return no("invalid_blocks")
    if path == "/api/chat.postMessage":
        channel = {"#gpu": "C1", "C1": "C1"}.get(asked.get("channel"))
        if channel is None:
            return no("channel_not_found")
        if asked.get("thread_ts") and asked["thread_ts"] not in MESSAGES:
            return no("thread_not_found")
        now = time.monotonic()
        recent = [at for at in SENT.get(channel, []) if now - at < BURST]
        if len(recent) >= BURST:
            return 429, {"Retry-After": "1"}, json.dumps({"ok": False, "error": "ratelimited"})
        SENT[channel] = recent + [now]
        ts = f"{1700000000 + len(MESSAGES)}.000100"
        MESSAGES[ts] = asked
        return 200, {}, json.dumps({"ok": True, "channel": channel, "ts": ts, "message": {"text": asked.get("text")}})
    if path == "/api/chat.update":
        if asked.get("channel") != "C1":
            return no("channel_not_found")
        if asked.get("ts") not in MESSAGES:
            return no("message_not_found")
        MESSAGES[asked["ts"]] = asked
        return 200, {}, json.dumps({"ok": True, "channel": "C1", "ts": asked["ts"], "text": asked.get("text")})
    return no("unknown_method")


def told_before(path, asked, no):
    """Newest first, below a message with that message; metadata only where it is asked for."""
    if asked.get("channel") != "C1":
        return no("channel_not_found")
    thread = asked.get("ts")
    def belongs(ts, message):
        if path.endswith(".replies"):
            return thread in (ts, message.get("thread_ts"))
        return "thread_ts" not in message or message.get("reply_broadcast")
    found = [{"ts": ts, "text": message.get("text"), "metadata": message.get("metadata")}
             for ts, message in MESSAGES.items() if belongs(ts, message)]
    if asked.get("include_all_metadata") != "true":
        found = [{name: value for name, value in one.items() if name != "metadata"} for one in found]
    return 200, {}, json.dumps({"ok": True, "messages": found[::-1][: int(asked.get("limit", 100))]})


parser = argparse.ArgumentParser()
parser.add_argument("file")
parser.add_argument("--port", type=int, default=0)
parser.add_argument("--burst", type=int, default=5, help="messages in as many seconds that a channel takes")
ASKED = parser.parse_args()
BURST = ASKED.burst

server = ThreadingHTTPServer(("127.0.0.1", ASKED.port), Handler)
server.daemon_threads = True
server.file = open(ASKED.file, "a", encoding="utf-8")
print(server.server_address[1], flush=True)
server.serve_forever()

#!/usr/bin/env python3
"""An SMTP server (Debian's python3-aiosmtpd) that takes mail, or refuses it as the address asks.

Each mail that it takes becomes one line of JSON in FILE, flushed before the reply. The part of the address before the
@ says what happens: `unknown` 550 and `later` 450 at RCPT; `spam` 554, `full` 452 and `gone` 421 after the mail;
`stall` no reply at all; all others are taken. The port is printed once it listens.
"""

import argparse
import asyncio
import json
import ssl
import sys

from aiosmtpd.smtp import SMTP, AuthResult, LoginPassword

AT_RCPT = {"unknown": "550 5.1.1 no such user", "later": "450 4.2.0 greylisted, come back"}
AT_DATA = {"spam": "554 5.7.1 refused as spam", "full": "452 4.3.1 no space", "gone": "421 4.3.2 going down"}


def local(address):
    return address.split("@")[0]


class Handler:
    def __init__(self, file):
        self.file = file

    async def handle_RCPT(self, server, session, envelope, address, options):
        if local(address) in AT_RCPT:
            return AT_RCPT[local(address)]
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server, session, envelope):
        asked = local(envelope.rcpt_tos[0])
        if asked == "stall":
            await asyncio.sleep(3600)
        if asked in AT_DATA:
            return AT_DATA[asked]
        mail = {
            "from": envelope.mail_from,
            "to": envelope.rcpt_tos,
            "user": session.auth_data.login.decode() if session.auth_data else None,
            "tls": server.transport.get_extra_info("ssl_object") is not None,
            "content": envelope.content.decode("ascii"),
        }
        self.file.write(json.dumps(mail) + "\n")
        self.file.flush()
        return "250 OK taken"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--tls", choices=["none", "starttls", "tls"], default="none")
    parser.add_argument("--cert")
    parser.add_argument("--key")
    parser.add_argument("--login", help="USER:PASSWORD that a client must give")
    asked = parser.parse_args()

    context = None
    if asked.tls != "none":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(asked.cert, asked.key)

    def authenticate(server, session, envelope, mechanism, data):
        good = isinstance(data, LoginPassword) and f"{data.login.decode()}:{data.password.decode()}" == asked.login
        # Not handled: aiosmtpd then answers 535 itself.
        return AuthResult(success=good, handled=good, auth_data=data)

    handler = Handler(open(asked.file, "a", encoding="utf-8"))

    def factory():
        return SMTP(
            handler,
            hostname="localhost",
            tls_context=context if asked.tls == "starttls" else None,
            require_starttls=asked.tls == "starttls",
            authenticator=authenticate if asked.login else None,
            auth_required=bool(asked.login),
            auth_require_tls=asked.tls == "starttls",
        )

    async def serve():
        loop = asyncio.get_running_loop()
        wrapped = context if asked.tls == "tls" else None
        server = await loop.create_server(factory, asked.host, asked.port, ssl=wrapped)
        print(server.sockets[0].getsockname()[1], flush=True)
        await server.serve_forever()

    try:
        asyncio.run(serve())
    except KeyboardInterrupt:
        sys.exit(0)


main()

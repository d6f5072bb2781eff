"""Addresses of workers at 127.0.0.1, for tests of several processes."""

import contextlib
import json
import socket


def free_ports(count):
    """Returns ports that nobody listens at."""
    with contextlib.ExitStack() as stack:
        servers = [
            stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            for _ in range(count)
        ]
        return [server.getsockname()[1] for server in servers]


def free_addresses(count):
    """Returns addresses at which workers can listen."""
    return [f"127.0.0.1:{port}" for port in free_ports(count)]


def describe(kind="worker", index=0, **jobs):
    """Returns the TF_CONFIG of a worker, from lists of addresses by kind."""
    return json.dumps({"cluster": jobs, "task": {"type": kind, "index": index}})

"""Memory of `slate serve` before, while and after many connections are open, three times: connections.py SLATE BUNDLE COUNT

Each connection asks for a slate and stays open, then all close. What the allocator keeps for the next is no leak: the second
and the third time show whether it grows. Prints one JSON object; needs `ulimit -n` above twice COUNT.
"""
import json
import resource
import socket
import sys
import time

from server import Server

slate, bundle, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_NOFILE, (min(4 * count, resource.getrlimit(resource.RLIMIT_NOFILE)[1]),) * 2)
server = Server(slate, bundle, "--max-connections", str(count), "--timeout", "60")
host, port = server.address.removeprefix("http://").split(":")
body = b'{"items": []}'
request = (f"POST /v1/slates HTTP/1.1\r\nhost: {host}:{port}\r\ncontent-type: application/json\r\n"
           f"content-length: {len(body)}\r\n\r\n").encode() + body
server.ask("/v1/slates", {"items": []})
before, _ = server.gib()
waves, answers, seconds = [], {}, 0.0
for _ in range(3):
    opened = [socket.create_connection((host, int(port))) for _ in range(count)]
    began = time.monotonic()
    for connection in opened:
        connection.sendall(request)
    for connection in opened:
        status = connection.recv(1 << 16).split(b" ", 2)[1].decode()
        answers[status] = answers.get(status, 0) + 1
    seconds += time.monotonic() - began
    held, _ = server.gib()
    beyond = socket.create_connection((host, int(port)))
    beyond.sendall(request)
    turned_away = beyond.recv(1 << 16).split(b" ", 2)[1].decode()
    for connection in [*opened, beyond]:
        connection.close()
    time.sleep(2)
    after, peak = server.gib()
    waves.append({"open_gib": held, "after_gib": after})
began = time.monotonic()
server.ask("/v1/slates", {"items": []})
answered = time.monotonic() - began
server.stop()
print(json.dumps({"bundle": bundle.rsplit("/", 1)[-1], "connections": count, "answers": answers, "seconds": seconds,
                  "one_more": turned_away, "before_gib": before, "waves": waves, "peak_gib": peak,
                  "then_answered_seconds": answered}))

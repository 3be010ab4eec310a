"""What the benches share: processes that end with the script, calls, and the channels in front of the upstream."""
import http.client
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SMALL = {"model": "mock-model", "messages": [
    {"role": "system", "content": "You are a helpful assistant."},
    {"role": "user", "content": "Say something about foxes and dogs, in at most a hundred words, please."}]}
BIG = {"messages": [{"role": "user", "content": "lorem ipsum " * 17_066}]}
KEYS = {"BENCH_KEY_A": "sk-a", "BENCH_KEY_B": "sk-b", "BENCH_KEY_BAD": "bad-b"}
STARTED = []


def say(*words):
    print(*words, file=sys.stderr, flush=True)


def start(argv, log):
    with open(log, "w") as out:
        process = subprocess.Popen([str(a) for a in argv], stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                   env=dict(os.environ, **KEYS), start_new_session=True)
    STARTED.append(process)
    return process


def stop_all():
    for process in reversed(STARTED):
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def listening(log, seconds=60):
    """The fields of the event `listening` in a log of JSON lines."""
    end = time.time() + seconds
    while time.time() < end:
        for line in open(log, errors="replace"):
            if '"listening"' in line:
                return json.loads(line)
            if '"start_failed"' in line:
                sys.exit(line)
        time.sleep(0.05)
    sys.exit(f"nothing listens after {seconds} s: {log}")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def call(address, method, path, body=None):
    host, port = address.split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=10)
    try:
        connection.request(method, path, body, {"content-type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def until_good(address, body, seconds=60):
    end = time.time() + seconds
    while time.time() < end:
        try:
            if call(address, "POST", "/v1/chat/completions", json.dumps(body))[0] == 200:
                return
        except OSError:
            pass
        time.sleep(0.1)
    sys.exit(f"no good answer from {address} within {seconds} s")

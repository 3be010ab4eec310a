"""The processes of the quickstart: started, listened to, ended. Standard library only."""

import json
import os
import pathlib
import queue
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOOLS = ROOT / "target" / "tools"


class Failed(Exception):
    """A step did not hold."""


class Log:
    """The lines a process printed; JSON where they are."""

    def __init__(self, name, stream, path):
        self.name, self.lines, self.changed, self.ended = name, [], threading.Condition(), False
        threading.Thread(target=self._collect, args=(stream, path), daemon=True).start()

    def _collect(self, stream, path):
        with open(path, "a", encoding="utf-8", buffering=1) as file:
            for text in stream:
                file.write(text)
                try:
                    line = json.loads(text)
                except ValueError:
                    line = {}
                if not isinstance(line, dict):
                    line = {}
                line = {**line, **line.get("fields", {}), "text": text.rstrip()}
                with self.changed:
                    self.lines.append(line)
                    self.changed.notify_all()
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    def mark(self):
        """Where the log ends now."""
        return len(self.lines)

    def find(self, wanted, after=0):
        """The first line as wanted, or None."""
        return next((line for line in self.lines[after:] if wanted(line)), None)

    def wait(self, what, wanted, after=0, limit=30):
        """The first line as wanted, old or new."""
        deadline = time.monotonic() + limit
        with self.changed:
            while True:
                line = self.find(wanted, after)
                if line:
                    return line
                left = deadline - time.monotonic()
                if self.ended or left <= 0:
                    tail = "\n".join("    " + line["text"] for line in self.lines[-8:])
                    why = "ended first" if self.ended else f"said nothing of the kind within {limit} s"
                    raise Failed(f"{self.name}: waited for {what}, but it {why}; the end of its log:\n{tail}")
                self.changed.wait(left)


class Stack:
    """Everything that runs, and the folder it runs in."""

    def __init__(self, binaries):
        self.binaries = pathlib.Path(binaries)
        self.processes, self.logs = {}, {}
        # Not in the clone: the database's unprivileged user must be able to enter it.
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="spareline-"))
        self.folder.chmod(0o711)
        self.log_folder = ROOT / "target" / "quickstart"
        shutil.rmtree(self.log_folder, ignore_errors=True)
        self.log_folder.mkdir(parents=True)

    def start(self, name, binary, *arguments):
        """Starts a process; its log goes to target/quickstart/NAME.log."""
        environment = {k: v for k, v in os.environ.items() if k not in ("DATABASE_URL", "RUST_LOG")}
        process = subprocess.Popen(
            [self.binaries / binary, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True, errors="replace", env=environment,
            start_new_session=True)  # Ctrl-C is ours to hand on, in our order
        self.processes[name] = process
        self.logs[name] = Log(name, process.stderr, self.log_folder / f"{name}.log")
        return self.logs[name]

    def kill(self, name):
        """As a crash would."""
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def stop(self):
        """Ends everything and leaves no file but the logs."""
        order = sorted(self.processes, key=lambda name: not name.startswith("proxy"))
        for name in order:
            process = self.processes.pop(name)
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
        deadline = time.monotonic() + 5  # the database may need a moment to let go of its files
        while self.folder.exists() and time.monotonic() < deadline:
            shutil.rmtree(self.folder, ignore_errors=True)
            if self.folder.exists():
                time.sleep(0.05)


def port(wanted):
    """`wanted` if it is free, else 0, which means any."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", wanted))
            return wanted
        except OSError:
            return 0


def control(provider, method, path, body=None):
    """Tells the fake provider what to do."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://{provider}/control/{path}", data, method=method)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=30) as answer:
        return json.load(answer)

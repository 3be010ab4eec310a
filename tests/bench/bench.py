#!/usr/bin/env python3
"""CPU per request, time to first content and memory of spareline-proxy beside nginx proxy_pass, in the same minutes.

Needs nginx, and what deploy/release needs to build what is measured. Everything runs on loopback, on free ports, in a temporary folder, and ends
with the script. About four minutes after the build; --rounds and --seconds bound it. See README.md in this folder.
"""
import argparse
import json
import os
import pathlib
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from stand import BIG, KEYS, ROOT, SMALL, STARTED, call, free_port, listening, say, start, stop_all, until_good  # noqa: E402

# name, connections, changes to the body, nginx's server
SCENARIOS = [
    ("plain", 64, {}, 0),
    ("stream", 50, {"stream": True}, 0),
    ("big", 16, BIG, 0),
    ("failover", 32, {"model": "half-broken"}, 1),
]
NGINX = """
worker_processes %(cores)d; daemon off; pid %(dir)s/nginx.pid; error_log stderr error;
events { worker_connections 32768; }
worker_rlimit_nofile %(files)d;
http {
    access_log off;
    client_body_temp_path %(dir)s/t1; proxy_temp_path %(dir)s/t2; fastcgi_temp_path %(dir)s/t3;
    uwsgi_temp_path %(dir)s/t4; scgi_temp_path %(dir)s/t5;
    client_body_buffer_size 1m; client_max_body_size 64m; keepalive_requests 10000000;
    proxy_http_version 1.1; proxy_buffering off; tcp_nodelay on;
    upstream provider { server %(upstream)s; keepalive 256; keepalive_requests 10000000; }
    upstream slow { server %(slow)s; }
    split_clients $request_id $first { 50%% "Bearer sk-a"; * "Bearer bad-b"; }
    server {
        listen 127.0.0.1:%(port0)d reuseport;
        location / {
            proxy_pass http://provider;
            proxy_set_header Connection ""; proxy_set_header Authorization "Bearer sk-a";
        }
    }
    server {
        listen 127.0.0.1:%(port1)d reuseport;
        location / {
            proxy_pass http://provider;
            proxy_set_header Connection ""; proxy_set_header Authorization $first;
            proxy_intercept_errors on; error_page 401 = @second;
        }
        location @second {
            proxy_pass http://provider;
            proxy_set_header Connection ""; proxy_set_header Authorization "Bearer sk-a";
        }
    }
    server {
        listen 127.0.0.1:%(port2)d reuseport backlog=4096;
        location / {
            proxy_pass http://slow;
            proxy_set_header Connection ""; proxy_set_header Authorization "Bearer sk-a";
        }
    }
}
"""
CHANNELS = """
credentials:
  a: {secret_env: BENCH_KEY_A}
  b: {secret_env: BENCH_KEY_B}
  bad: {secret_env: BENCH_KEY_BAD}
channels:
  - {name: a, provider: openai_compatible, base_url: "http://%(up)s/v1", models: [mock-model], credentials: [a]}
  - {name: b, provider: openai_compatible, base_url: "http://%(up)s/v1", models: [mock-model], credentials: [b]}
  - {name: slow, provider: openai_compatible, base_url: "http://%(slow)s/v1", models: [slow], credentials: [a]}
  - {name: good, provider: openai_compatible, base_url: "http://%(up)s/v1", models: [half-broken], credentials: [a]}
  - {name: bad, provider: openai_compatible, base_url: "http://%(up)s/v1", models: [half-broken], credentials: [bad]}
"""

def until_applied(argv, seconds=60):
    """The control plane listens before its database is there."""
    end = time.time() + seconds
    while True:
        done = subprocess.run([str(a) for a in argv], env=dict(os.environ, **KEYS), stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True)
        if done.returncode == 0:
            return
        if time.time() > end:
            sys.exit(done.stderr)
        time.sleep(0.3)


# -------------------------------------------------------------- accounting

def family(root):
    """A process and its children."""
    out = [root]
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                text = open(f"/proc/{entry}/stat").read()
            except OSError:
                continue
            if int(text.rsplit(")", 1)[1].split()[1]) == root:
                out.append(int(entry))
    return out


def cpu_seconds(root):
    """CPU time of all threads so far. Both programs keep their threads, so nothing is lost with one that ends."""
    total = 0
    for pid in family(root):
        for thread in os.listdir(f"/proc/{pid}/task"):
            try:
                total += int(open(f"/proc/{pid}/task/{thread}/schedstat").read().split()[0])
            except OSError:
                pass
    return total / 1e9


def descriptors(root):
    return sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in family(root))


def memory_mib(root, field):
    total = 0
    for pid in family(root):
        for line in open(f"/proc/{pid}/status"):
            if line.startswith(field + ":"):
                total += int(line.split()[1])
    return total / 1024


# -------------------------------------------------------------------- load

class Load:
    def __init__(self, binary, folder, upstream):
        self.binary, self.folder, self.upstream = binary, folder, upstream

    def run(self, address, pid, body, connections, seconds):
        path = self.folder / "body.json"
        path.write_text(json.dumps(body))
        call(self.upstream, "GET", "/reset")
        before = cpu_seconds(pid) if pid else 0
        argv = [self.binary, f"http://{address}/v1/chat/completions", "--body", path, "--connections", connections,
                "--seconds", seconds, "--header", "authorization: Bearer sk-a"]
        done = subprocess.run([str(a) for a in argv], stdout=subprocess.PIPE, check=True, timeout=seconds + 90)
        time.sleep(0.2)  # what is done after an answer belongs to the request
        row = json.loads(done.stdout)
        row["cpu_us"] = (cpu_seconds(pid) - before) * 1e6 / max(row["requests"], 1) if pid else None
        row["refused"] = json.loads(call(self.upstream, "GET", "/stats")[1])["refused"]
        return row

    def memory(self, address, pid, body, sockets, *more):
        """MiB of a process once it has so many sockets more than before."""
        path = self.folder / "body.json"
        path.write_text(json.dumps(body))
        want = descriptors(pid) + sockets
        argv = [self.binary, f"http://{address}/v1/chat/completions", "--body", path, "--header", "authorization: Bearer sk-a"]
        load = subprocess.Popen([str(a) for a in (*argv, *more)], stdout=subprocess.PIPE)
        STARTED.append(load)
        end = time.time() + 60
        while descriptors(pid) < want:
            if load.poll() is not None or time.time() > end:
                sys.exit(f"{address} had {descriptors(pid)} descriptors instead of {want} (see ulimit -Hn)")
            time.sleep(0.05)
        time.sleep(0.5)
        mib = memory_mib(pid, "VmRSS")
        row = json.loads(load.communicate(timeout=120)[0])
        if row["good"] != row["requests"]:
            sys.exit(f"{address}: not all were answered: {row}")
        return mib


def table(rows, warm):
    """rows: (scenario, target, round) -> what the load saw; warm: the same of the warm-up, without rounds."""
    median = lambda values: statistics.median(values) if values else float("nan")
    print("| scenario | target | CPU µs/request | ÷ nginx | requests/s | first content p50 / p99 ms | errors | 401s per 1000 |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for scenario, *_ in SCENARIOS:
        for target in ("direct", "nginx", "spareline"):
            mine = {r: row for (s, t, r), row in rows.items() if (s, t) == (scenario, target)}
            if not mine:
                continue
            base = {r: rows.get((scenario, "nginx", r)) for r in mine}
            ratios = [row["cpu_us"] / base[r]["cpu_us"] for r, row in mine.items() if row["cpu_us"] and base[r]]
            of = lambda f: median([f(row) for row in mine.values()])
            every = [*mine.values(), warm[scenario, target]]
            n = sum(row["requests"] for row in every)
            cpu = f"{of(lambda r: r['cpu_us']):.1f}" if target != "direct" else "-"
            print(f"| {scenario} | {target} | {cpu} | {f'{median(ratios):.2f}' if ratios else '-'} "
                  f"| {of(lambda r: r['good'] / r['seconds']):.0f} "
                  f"| {of(lambda r: r['first_content_us']['p50']) / 1e3:.2f} / {of(lambda r: r['first_content_us']['p99']) / 1e3:.2f} "
                  f"| {n - sum(row['good'] for row in every)} "
                  f"| {1000 * sum(row['refused'] for row in every) / max(n, 1):.1f} |")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=3, help="1 to 20 (default %(default)s)")
    p.add_argument("--seconds", type=float, default=3, help="of each run, 0.5 to 30 (default %(default)s)")
    p.add_argument("--scenarios", default=",".join(s[0] for s in SCENARIOS))
    p.add_argument("--memory", action=argparse.BooleanOptionalAction, default=True,
                   help="measure memory with 1000 open streams and 10000 idle connections")
    p.add_argument("--workers", type=int, default=0, help="the proxy's worker threads (default: one per core)")
    p.add_argument("--bin", type=pathlib.Path, help="a folder with the binaries; given: nothing is built")
    p.add_argument("--plain-build", action="store_true", help="measure what `cargo build --release` builds, in place of deploy/release")
    opts = p.parse_args()
    rounds, seconds = min(max(opts.rounds, 1), 20), min(max(opts.seconds, 0.5), 30)
    nginx = shutil.which("nginx") or shutil.which("/usr/sbin/nginx") or sys.exit("nginx is missing (package nginx-light)")
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    if opts.plain_build:
        names = ["spareline-proxy", "spareline-control", "bench_upstream", "bench_load"]
        subprocess.run(["cargo", "build", "--release"] + [f"--bin={n}" for n in names], cwd=ROOT, check=True)
    elif not opts.bin:
        subprocess.run([ROOT / "deploy/release"], check=True)
    bins = opts.bin or target / ("release" if opts.plain_build else "dist")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="spareline-bench-"))
    folder.chmod(0o755)  # the private Postgres runs as another user where this runs as root
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    idlers = min(10_000, files - 3000)
    try:
        start([bins / "bench_upstream"], folder / "upstream.log")
        upstream = listening(folder / "upstream.log")["http_addr"]
        start([bins / "bench_upstream", "--interval-ms", 300], folder / "slow.log")
        slow = listening(folder / "slow.log")["http_addr"]

        control = [bins / "spareline-control"]
        start(control + ["--admin-listen", "127.0.0.1:0", "--data-listen", "127.0.0.1:0", "--state-dir", folder / "state",
                         "--log-format", "json"], folder / "control.log")
        at = listening(folder / "control.log", 120)
        (folder / "channels.yaml").write_text(CHANNELS % {"up": upstream, "slow": slow})
        until_applied(control + ["apply", "--admin", f"http://{at['admin_addr']}", folder / "channels.yaml"])
        # As in production: every request logged as JSON into a file, metrics on.
        proxy = start([bins / "spareline-proxy", "--control-plane", f"http://{at['data_addr']}", "--listen", "127.0.0.1:0",
                       "--admin-listen", "127.0.0.1:0", "--log-format", "json", "--workers", opts.workers],
                      folder / "proxy.log")
        traffic = listening(folder / "proxy.log")["http_addr"]

        ports = [free_port() for _ in range(3)]
        conf = NGINX % {"cores": os.cpu_count(), "dir": folder, "upstream": upstream, "slow": slow, "port0": ports[0],
                        "port1": ports[1], "port2": ports[2], "files": files}
        (folder / "nginx.conf").write_text(conf)
        reference = start([nginx, "-p", folder, "-c", folder / "nginx.conf"], folder / "nginx.log")
        until_good(f"127.0.0.1:{ports[0]}", SMALL)
        until_good(traffic, SMALL)
        time.sleep(1)
        idle = memory_mib(proxy.pid, "VmRSS")

        load, rows, warm = Load(bins / "bench_load", folder, upstream), {}, {}
        for number in range(rounds + 1):  # the first one warms up
            for name, connections, changes, server in SCENARIOS:
                if name not in opts.scenarios.split(","):
                    continue
                targets = [("direct", upstream, None), ("nginx", f"127.0.0.1:{ports[server]}", reference.pid),
                           ("spareline", traffic, proxy.pid)]
                for target, address, pid in targets[number % 3:] + targets[:number % 3]:
                    row = load.run(address, pid, dict(SMALL, **changes), connections, seconds if number else 1)
                    say(f"round {number} {name:9} {target:10} {row['good'] / row['seconds']:9.0f}/s"
                        + (f" {row['cpu_us']:8.1f} us" if pid else ""))
                    # What the warm-up teaches about a bad key is part of the figure; its speed is not.
                    if number:
                        rows[name, target, number] = row
                    else:
                        warm[name, target] = row
        table(rows, warm)
        print(f"\n{os.cpu_count()} cores, {rounds} rounds of {seconds:g} s; ratios are medians of pairs of one round.")
        print(f"Memory of the proxy: {idle:.0f} MiB before the load, {memory_mib(proxy.pid, 'VmHWM'):.0f} MiB at its peak.")
        if opts.memory:
            streams = dict(SMALL, model="slow", stream=True)
            for name, body, sockets, more in [
                    ("1000 open streams", streams, 2000, ["--connections", 1000, "--requests", 1000, "--seconds", 30]),
                    (f"{idlers} idle connections", SMALL, idlers,
                     ["--connections", idlers, "--requests", idlers, "--rate", 2500, "--linger", 3, "--seconds", 30])]:
                address = f"127.0.0.1:{ports[2 if body is streams else 0]}"
                said = [load.memory(address, reference.pid, body, sockets, *more), load.memory(traffic, proxy.pid, body, sockets, *more)]
                print(f"With {name}: nginx {said[0]:.0f} MiB, spareline {said[1]:.0f} MiB.")
    finally:
        stop_all()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()

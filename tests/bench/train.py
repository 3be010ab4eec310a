#!/usr/bin/env python3
"""The load that a release is optimised for (deploy/release): sends it through a proxy and stops that in good order.

Plain requests, streams, large prompts and a dead key, over http and over https, in equal parts. Loopback only, on free ports,
about ten seconds.
"""
import argparse
import json
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from stand import BIG, SMALL, listening, start, stop_all, until_good  # noqa: E402

CREDENTIALS = """
credentials:
  a: {secret_env: BENCH_KEY_A}
  b: {secret_env: BENCH_KEY_B}
  bad: {secret_env: BENCH_KEY_BAD}
channels:
"""
CHANNEL = """
  - name: %(scheme)s-%(key)s
    provider: openai_compatible
    base_url: "%(scheme)s://%(address)s/v1"
    models: [%(models)s]
    credentials: [%(key)s]
"""
# name, connections, changes to the body, part of the time
LOADS = [
    ("plain", 64, {}, 1),
    ("stream", 50, {"stream": True}, 1),
    ("big", 16, BIG, 0.5),
    ("failover", 32, {"model": "half-broken"}, 0.25),
]


def channels(scheme, said):
    """Two good ones, and a dead one beside one of them."""
    text = ""
    for key, models in [("a", "%s, %s-half-broken"), ("b", "%s"), ("bad", "%s-half-broken")]:
        models = models.replace("%s", scheme)
        text += CHANNEL % {"scheme": scheme, "key": key, "address": said["http_addr"], "models": models}
        if said["ca_pem"]:
            text += "    options:\n      ca_pem: |\n" + textwrap.indent(said["ca_pem"], " " * 8)
    return text


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--proxy", type=pathlib.Path, required=True, help="the proxy's binary")
    p.add_argument("--bin", type=pathlib.Path, required=True, help="a folder with bench_upstream and bench_load")
    p.add_argument("--seconds", type=float, default=2, help="of the longest load, 0.1 to 30 (default %(default)s)")
    opts = p.parse_args()
    seconds = min(max(opts.seconds, 0.1), 30)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="spareline-train-"))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        text = CREDENTIALS
        for scheme, more in [("http", []), ("https", ["--tls"])]:
            start([opts.bin / "bench_upstream", "--interval-ms", 2, *more], folder / f"{scheme}.log")
            text += channels(scheme, listening(folder / f"{scheme}.log"))
        (folder / "channels.yaml").write_text(text)
        proxy = start([opts.proxy, "--standalone", folder / "channels.yaml", "--listen", "127.0.0.1:0", "--admin-listen",
                       "127.0.0.1:0", "--log-format", "json"], folder / "proxy.log")
        address = listening(folder / "proxy.log")["http_addr"]
        for scheme in ["http", "https"]:
            until_good(address, dict(SMALL, model=scheme))
            for name, connections, changes, part in LOADS:
                body = dict(SMALL, **changes)
                body["model"] = body["model"].replace("mock-model", scheme).replace("half", f"{scheme}-half")
                (folder / "body.json").write_text(json.dumps(body))
                argv = [opts.bin / "bench_load", f"http://{address}/v1/chat/completions", "--body", folder / "body.json",
                        "--connections", connections, "--seconds", seconds * part]
                done = subprocess.run([str(a) for a in argv], stdout=subprocess.PIPE, check=True, timeout=seconds + 90)
                row = json.loads(done.stdout)
                if row["good"] != row["requests"]:
                    sys.exit(f"{name} over {scheme}: not all were answered: {row}")
                print(f"{name:8} over {scheme:5} {row['requests']:8} requests", flush=True)
        proxy.send_signal(signal.SIGTERM)
        if proxy.wait(40) != 0:
            sys.exit("the proxy did not end well")
    finally:
        stop_all()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""A pull worker for Tidegate in Python 3.9+, with the standard library only.

It leases jobs in batches (a call waits until there is work), runs `handle` for each in a pool of threads, extends
the leases of long runs, and settles in batches. On SIGTERM or Ctrl-C it finishes running jobs, or releases them.

    TIDEGATE_URL=http://127.0.0.1:7171 TIDEGATE_KEY=tg_... python3 worker.py --queue default --concurrency 8

Replace `handle` with your work. Jobs run at least once: make the work safe to repeat.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import queue
import random
import signal
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit


class Failed(Exception):
    """The job can never succeed: it is dead."""


class Throttled(Exception):
    """The downstream throttles, which uses up no attempt; the job is retried after `retry_after` seconds."""

    def __init__(self, retry_after: float | None = None):
        super().__init__(f"retry after {retry_after} s")
        self.retry_after = retry_after


def handle(job: dict) -> object:
    """Does the work of one job and returns its result, any JSON.

    Raise `Failed` if it can never succeed, `Throttled` if the downstream is overloaded, anything else if it may succeed
    later. `job` has `group`, `batch`, `id`, `type`, `priority`, `attempt`, `deadline`, `timeoutMs` and `payload`.

    As an example it does what the payload says: {"sleep_ms": 100, "throttle_ms": 50, "fail": "why", "retry": "why"}.
    """
    payload = job["payload"] if isinstance(job["payload"], dict) else {}
    time.sleep(payload.get("sleep_ms", 0) / 1000)
    if "fail" in payload:
        raise Failed(payload["fail"])
    if job["attempt"] == 1 and "retry" in payload:
        raise RuntimeError(payload["retry"])
    if "throttle_ms" in payload and throttled_once(job):
        raise Throttled(payload["throttle_ms"] / 1000)
    return {"by": "python", "id": job["id"]}


_throttled: set[tuple[str, str]] = set()


def throttled_once(job: dict) -> bool:
    """True the first time a job is seen: throttling uses up no attempt, so the attempt number does not show it."""
    name = (job["group"], job["id"])
    known = name in _throttled
    _throttled.add(name)
    return not known


class Refused(Exception):
    """The service refused a call; `problem` explains it (RFC 9457)."""

    def __init__(self, status: int, problem: dict, retry_after: float | None):
        super().__init__(f"{problem.get('detail', 'no reason given')} ({problem.get('code', status)})")
        self.status = status
        self.retry_after = retry_after


class Service:
    """One connection to the service, kept open. Not for several threads at once."""

    def __init__(self, url: str, key: str | None):
        self.address = urlsplit(url)
        if self.address.scheme not in ("http", "https") or not self.address.hostname:
            raise SystemExit(f"{url!r} is not the address of a service; write it like http://127.0.0.1:7171")
        self.headers = {"content-type": "application/json", "user-agent": "tidegate-example-worker-py"}
        if key:
            self.headers["authorization"] = f"Bearer {key}"
        self.connection: http.client.HTTPConnection | None = None

    def call(self, path: str, body: dict, timeout: float = 30) -> dict:
        kept = self.connection is not None
        try:
            return self._call(path, body, timeout)
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
            if not kept:
                raise
            # The service closes idle connections: once more on a fresh one.
            return self._call(path, body, timeout)

    def _call(self, path: str, body: dict, timeout: float) -> dict:
        if self.connection is None:
            kind = http.client.HTTPSConnection if self.address.scheme == "https" else http.client.HTTPConnection
            self.connection = kind(self.address.hostname, self.address.port, timeout=timeout)
            self.connection.connect()
            self.connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connection.sock.settimeout(timeout)
        try:
            self.connection.request(
                "POST", self.address.path.rstrip("/") + path, json.dumps(body).encode(), self.headers
            )
            answer = self.connection.getresponse()
            text = answer.read()
            # The service closes this connection: the next call needs another one.
            if answer.will_close:
                self.close()
        except BaseException:
            self.close()
            raise
        if answer.status == 200:
            return json.loads(text)
        try:
            problem = json.loads(text)
        except ValueError:
            problem = {"detail": text[:200].decode(errors="replace")}
        after = answer.headers.get("retry-after", "")
        raise Refused(answer.status, problem, float(after) if after.isdigit() else None)

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None


class Pause:
    """Backoff between tries: what the service says, or exponential with jitter."""

    def __init__(self):
        self.next = 0.1

    def after(self, error: Exception) -> float:
        guess, self.next = self.next, min(self.next * 2, 5.0)
        said = getattr(error, "retry_after", None) or 0
        return max(said, guess * random.uniform(0.5, 1.0))


def is_transient(error: Exception) -> bool:
    """The same call may succeed later."""
    if isinstance(error, Refused):
        return error.status in (429, 502, 503, 504)
    return isinstance(error, (OSError, http.client.HTTPException))


class Worker:
    def __init__(self, args: argparse.Namespace):
        self.args = args
        self.stop = threading.Event()
        # Limit: jobs that are leased and not settled.
        self.slots = threading.Semaphore(args.concurrency)
        self.answers: queue.Queue[dict | None] = queue.Queue()
        self.running: dict[str, tuple[float, float]] = {}  # lease -> (when to extend it, how long a run may take)
        self.lock = threading.Lock()

    def service(self) -> Service:
        return Service(self.args.url, self.args.key)

    def run(self) -> int:
        pool = ThreadPoolExecutor(self.args.concurrency)
        settler = threading.Thread(target=self.settle)
        extender = threading.Thread(target=self.extend, daemon=True)
        settler.start()
        extender.start()
        code = self.lease(pool)
        # Running jobs may finish within the grace period; the rest is released.
        deadline = time.monotonic() + self.args.grace
        while time.monotonic() < deadline and self.count() > 0:
            time.sleep(0.02)
        with self.lock:
            left, self.running = list(self.running), {}
        for lease in left:
            self.answers.put({"lease": lease, "outcome": "RELEASED"})
        self.answers.put(None)
        settler.join()
        # Threads that are still at work cannot be stopped, and their outcomes would come too late.
        sys.stdout.flush()
        os._exit(code) if left else pool.shutdown()
        return code

    def count(self) -> int:
        with self.lock:
            return len(self.running)

    def lease(self, pool: ThreadPoolExecutor) -> int:
        service, pause = self.service(), Pause()
        while not self.stop.is_set():
            # One slot at least, and as many more as are free.
            if not self.slots.acquire(timeout=0.1):
                continue
            free = 1
            while free < self.args.batch and self.slots.acquire(blocking=False):
                free += 1
            jobs: list[dict] = []
            request = {
                "queue": self.args.queue, "max": free, "waitMs": self.args.wait_ms, "worker": self.args.name,
            }
            begun = time.monotonic()
            try:
                jobs = service.call("/v1/leases", request, timeout=30 + self.args.wait_ms / 1000)["jobs"]
                pause = Pause()
                if not jobs and time.monotonic() - begun < 0.1:
                    self.stop.wait(0.1)  # A stopping service answers at once.
            except Exception as error:
                if not is_transient(error):
                    log(f"cannot work: {error}")
                    return 1
                wait = pause.after(error)
                log(f"no work: {error}; retrying in {wait:.1f} s")
                self.stop.wait(wait)
            for _ in range(free - len(jobs)):
                self.slots.release()
            for job in jobs:
                if self.stop.is_set():
                    self.answers.put({"lease": job["lease"], "outcome": "RELEASED"})
                    continue
                seconds = job["timeoutMs"] / 1000
                with self.lock:
                    self.running[job["lease"]] = (time.monotonic() + seconds / 2, seconds)
                pool.submit(self.work, job)
        return 0

    def work(self, job: dict) -> None:
        answer = {"lease": job["lease"], "outcome": "COMPLETED"}
        try:
            answer["result"] = handle(job)
        except Failed as error:
            answer = {"lease": job["lease"], "outcome": "FAILED", "error": str(error)}
        except Throttled as error:
            answer = {"lease": job["lease"], "outcome": "THROTTLED"}
            if error.retry_after is not None:
                answer["retryAfterMs"] = int(error.retry_after * 1000)
        except Exception as error:
            answer = {"lease": job["lease"], "outcome": "RETRY", "error": f"{type(error).__name__}: {error}"}
        with self.lock:
            # Released or lost meanwhile: nobody needs the outcome.
            held = self.running.pop(job["lease"], None)
        if held is not None:
            self.answers.put(answer)
        self.slots.release()

    def extend(self) -> None:
        """Extends leases after half of the timeout: early enough, as a lease lasts a little longer than the timeout."""
        service = self.service()
        while True:
            time.sleep(0.25)
            now = time.monotonic()
            with self.lock:
                due = [lease for lease, (when, _) in self.running.items() if when <= now][:1000]
                seconds = max((self.running[lease][1] for lease in due), default=0)
            if not due:
                continue
            try:
                body = {"leases": due, "durationMs": int(seconds * 1000)}
                extended = service.call("/v1/leases/extend", body)["extended"]
            except Exception as error:
                log(f"could not extend leases: {error}; retrying")
                continue
            with self.lock:
                for lease, one in zip(due, extended):
                    if lease in self.running and "until" in one:
                        taken = self.running[lease][1]
                        self.running[lease] = (time.monotonic() + taken / 2, taken)
                    elif self.running.pop(lease, None):
                        log("a lease has expired; its job runs elsewhere")

    def settle(self) -> None:
        """Settles in batches: what ends during a call goes out with the next one."""
        service, ended = self.service(), False
        while not ended:
            answers = []
            first = self.answers.get()
            while first is not None:
                answers.append(first)
                if len(answers) == 1000:
                    break
                try:
                    first = self.answers.get_nowait()
                except queue.Empty:
                    break
            ended = first is None
            if answers:
                self.send(service, answers)

    def send(self, service: Service, answers: list[dict]) -> None:
        pause, until = Pause(), time.monotonic() + 60
        while True:
            try:
                settled = service.call("/v1/leases/settle", {"settlements": answers})["settled"]
                for one in settled:
                    if one["state"] == "STALE":
                        log("an outcome was too late; its job runs elsewhere")
                return
            except Exception as error:
                wait = pause.after(error)
                if not is_transient(error) or time.monotonic() + wait > until:
                    log(f"could not settle {len(answers)} jobs: {error}; they run again")
                    return
                time.sleep(wait)


def log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="A pull worker for Tidegate.")
    parser.add_argument("--url", default=os.environ.get("TIDEGATE_URL", "http://127.0.0.1:7171"))
    parser.add_argument("--key", default=os.environ.get("TIDEGATE_KEY"), help="better in TIDEGATE_KEY")
    parser.add_argument("--queue", default="default")
    parser.add_argument("--concurrency", type=int, default=8, help="jobs at once")
    parser.add_argument("--batch", type=int, default=100, help="most jobs of one lease call, up to 1000")
    parser.add_argument("--wait-ms", type=int, default=10_000, help="how long a lease call waits, up to 60000")
    parser.add_argument("--grace", type=float, default=30, help="seconds that running jobs may finish in after a stop")
    parser.add_argument("--name", default=f"{socket.gethostname()}-{os.getpid()}")
    worker = Worker(parser.parse_args())
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: worker.stop.set())
    return worker.run()


if __name__ == "__main__":
    sys.exit(main())
